//! Where things are, and who runs the servers: the Rust side of `places.sh`. Starts nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::unistd::{Uid, User};

/// The project's `build` folder.
pub(crate) fn build() -> PathBuf {
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build");
    link.canonicalize()
        .unwrap_or_else(|error| panic!("no {} ({error}): run `make setup`", link.display()))
}

/// User and group that servers must run as, when that is not who we are: root may not run PostgreSQL.
pub(crate) fn server_user() -> Option<(u32, u32)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = User::from_name("postgres")
        .ok()
        .flatten()
        .expect("a user \"postgres\": run `make setup`");
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// A new folder that only the server's user (and root) can enter.
pub(crate) fn temporary_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: the path of a Unix socket may have 107 bytes.
        let folder = std::env::temp_dir().join(format!("webhook.{}.{number}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))
                    .expect("mode of the temporary folder");
                give_to_server(&folder);
                return folder;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("could not create {}: {error}", folder.display()),
        }
    }
}

/// Makes `path` the server user's.
pub(crate) fn give_to_server(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("chown {}: {error}", path.display()));
    }
}
