//! Servers beside a server: a standby that follows it, its promotion, a backup that is recovered, and a disk that is soon
//! full.

use std::{fs, process::Command, time::Duration};

use crate::{
    cluster::{Cluster, plan::SMALL_DISK, processes::watchdog},
    place,
    wait::wait_for,
};

impl Cluster {
    /// A standby that follows this server, made from a base backup.
    pub fn standby(&self) -> Cluster {
        let mut standby = self.base_backup();
        // Not by -R: a client library newer than that of the server writes options that the server does not know.
        standby.follow(self);
        standby.start();
        standby
    }

    /// A server that does not run yet, made from a base backup of this one.
    pub fn base_backup(&self) -> Cluster {
        let folder = place::temporary_folder();
        let backup = Cluster {
            programs: self.programs.clone(),
            watchdog: watchdog(&folder),
            folder,
            plan: self.plan.clone(),
            server: None,
        };
        let output = self
            .program("pg_basebackup")
            .args(["-c", "fast", "-X", "stream", "-N", "-D"])
            .arg(backup.data_folder())
            .output()
            .unwrap_or_else(|error| panic!("could not run pg_basebackup: {error}"));
        assert!(
            output.status.success(),
            "pg_basebackup: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        backup.write_settings();
        backup
    }

    /// Makes this server, which is stopped, recover at its next start, with the settings that say from where and how far.
    pub fn recover_at_start(&mut self, settings: &[(&str, &str)]) {
        let signal = self.data_folder().join("recovery.signal");
        fs::write(&signal, "").expect("recovery.signal");
        place::give_to_server(&signal);
        for (name, value) in settings {
            self.set(name, value);
        }
    }

    /// Waits until a server that recovers is a primary.
    pub fn wait_for_end_of_recovery(&self) {
        wait_for("the server is a primary", Duration::from_secs(120), || {
            !self.in_recovery()
        });
    }

    /// Makes a standby a primary, and waits until it is one.
    pub fn promote(&self) {
        self.connect("postgres")
            .batch_execute("select pg_promote()")
            .expect("pg_promote");
        self.wait_for_end_of_recovery();
    }

    /// Makes this server, which is stopped, follow another one at its next start.
    pub fn follow(&self, primary: &Cluster) {
        let conninfo = format!(
            "primary_conninfo = 'host={} port=5432 user=postgres'\n",
            primary.folder().display()
        );
        for (name, text) in [("standby.signal", ""), ("postgresql.auto.conf", &*conninfo)] {
            let file = self.data_folder().join(name);
            fs::write(&file, text).unwrap_or_else(|error| panic!("{name}: {error}"));
            place::give_to_server(&file);
        }
    }

    /// Makes this server, which is stopped and empty, the successor of a stopped one of an older version.
    pub fn upgrade_from(&self, old: &Cluster) {
        // From then on initdb turns checksums on, and pg_upgrade wants both to be alike.
        if self.major() >= 18 {
            let mut sums = old.program("pg_checksums");
            sums.args(["--enable", "-N", "-D"]).arg(old.data_folder());
            assert!(sums.output().expect("pg_checksums").status.success());
        }
        let mut command = self.program("pg_upgrade");
        command
            .arg("-b")
            .arg(&old.programs)
            .arg("-B")
            .arg(&self.programs);
        command
            .arg("-d")
            .arg(old.data_folder())
            .arg("-D")
            .arg(self.data_folder());
        command
            .arg("-s")
            .arg(&self.folder)
            .current_dir(&self.folder);
        // It takes both servers' programs and ports from its arguments.
        command.env_remove("PGHOST").env_remove("PGPORT");
        let output = command.output().expect("pg_upgrade");
        assert!(
            output.status.success(),
            "pg_upgrade: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn in_recovery(&self) -> bool {
        self.connect("postgres")
            .query_one("select pg_is_in_recovery()", &[])
            .expect("pg_is_in_recovery")
            .get(0)
    }

    /// The server in a mount namespace of its own, with a small disk in it.
    pub(super) fn on_small_disk(&self) -> Command {
        // `exec` all the way down: the process that was started is the program itself, so its id can be signalled.
        const SCRIPT: &str = r#"
            set -e
            mount -t tmpfs -o "size=$1m,uid=$2,gid=$3,mode=700" tmpfs "$4"
            user=$2 group=$3
            shift 4
            exec setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@"
        "#;
        let (user, group) = place::server_user().expect("a mount namespace needs root");
        let megabytes = self.plan.small_disk.expect("a small disk");
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "--",
                "sh",
                "-c",
                SCRIPT,
                "sh",
            ])
            .args([megabytes, user, group].map(|number| number.to_string()))
            .arg(SMALL_DISK)
            .arg(self.programs.join("postgres"));
        command
    }
}
