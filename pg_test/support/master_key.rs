//! A file of master keys, as an operator would make it, and as he should not.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{cluster::Cluster, place};

/// A file in the cluster's own folder, beside the data.
pub struct MasterKeyFile {
    path: PathBuf,
}

impl MasterKeyFile {
    /// Writes the file with one key and has the server use it.
    pub fn set(cluster: &mut Cluster, key: u8) -> MasterKeyFile {
        let file = MasterKeyFile {
            path: cluster.folder().join("master.key"),
        };
        file.write(&[key]);
        cluster.reload(&[("webhook.master_key_file", &file.path.to_string_lossy())]);
        file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the keys: the first encrypts, each made of one byte.
    pub fn write(&self, keys: &[u8]) {
        let lines: Vec<String> = keys.iter().map(|key| line(*key)).collect();
        self.write_text(&format!("{}\n", lines.join("\n")));
    }

    /// Replaces the text, and mends what was wrong with the file itself.
    pub fn write_text(&self, text: &str) {
        self.remove();
        fs::write(&self.path, text).expect("the master key file");
        self.set_mode(0o600);
        place::give_to_server(&self.path);
    }

    /// Sets the mode.
    pub fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode)).expect("mode");
    }

    /// Puts a folder in its place.
    pub fn write_folder(&self) {
        self.remove();
        fs::create_dir(&self.path).expect("a folder");
        place::give_to_server(&self.path);
    }

    /// Removes it.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.path);
    }
}

/// The line of a key. No two bytes in a row are alike: such runs stand in every data folder, and a search for the
/// key would find them.
pub fn line(key: u8) -> String {
    let bytes: [u8; 32] = std::array::from_fn(|n| {
        let n = u8::try_from(n).unwrap_or_default();
        key.wrapping_mul(151) ^ n.wrapping_mul(59).wrapping_add(83)
    });
    STANDARD.encode(bytes)
}
