//! A private PostgreSQL cluster: its own data folder, Unix socket, settings, environment and, on request, its own
//! view of the name service. Refuses to touch any server it did not start, and is gone when it is dropped, even if
//! the test process is killed.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postgres::{Client, NoTls};

pub use crate::cluster::plan::{Plan, SMALL_DISK};
use crate::{
    cluster::{
        plan::replace,
        processes::{descendants, pid_of, runs, stands_still, watchdog},
    },
    dns, place,
    wait::{wait_for, wait_until},
};

mod plan;
mod processes;
mod standby;

/// How a server is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Waits for the clients to leave.
    Smart,
    /// Ends the sessions, writes a checkpoint.
    Fast,
    /// Like a crash, but in order: recovery follows at the next start.
    Immediate,
}

/// A cluster that belongs to one test.
pub struct Cluster {
    plan: Plan,
    programs: PathBuf,
    folder: PathBuf,
    /// The postmaster, when it runs.
    server: Option<Child>,
    /// Stops the server and removes the folder should this process die without doing so.
    watchdog: Child,
}

impl Cluster {
    /// The usual plan: extension preloaded, plain HTTP to any port of the loopback network allowed. The server is
    /// that of the pg_config named by `WEBHOOK_PG_CONFIG`, or the private copy of PostgreSQL 15.
    pub fn plan() -> Plan {
        Plan::usual()
    }

    /// Starts a cluster by the usual plan.
    pub fn start_usual() -> Cluster {
        Self::plan().start()
    }

    /// Connects as superuser to `database`.
    pub fn connect(&self, database: &str) -> Client {
        self.try_connect(database)
            .unwrap_or_else(|error| panic!("could not connect to \"{database}\": {error}"))
    }

    /// Connects as superuser to `database`, which may fail.
    pub fn try_connect(&self, database: &str) -> Result<Client, postgres::Error> {
        self.connection(database).connect(NoTls)
    }

    /// How to connect, to be adjusted (another user, an application name, options).
    pub fn connection(&self, database: &str) -> postgres::Config {
        let mut config = Client::configure();
        config
            .host_path(&self.folder)
            .port(5432)
            .user("postgres")
            .dbname(database);
        config.connect_timeout(Duration::from_secs(30));
        config
    }

    /// Creates a database and connects to it.
    pub fn create_database(&self, name: &str) -> Client {
        let statement = format!("create database \"{name}\"");
        self.connect("postgres")
            .batch_execute(&statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        self.connect(name)
    }

    /// Changes a setting in postgresql.conf; [`reload`](Self::reload) or a restart makes it count.
    pub fn set(&mut self, name: &str, value: &str) {
        replace(&mut self.plan.settings, name, value);
        self.write_settings();
    }

    /// Changes settings and waits until a new session sees them.
    pub fn reload(&mut self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.set(name, value);
        }
        let mut client = self.connect("postgres");
        let before: String = loaded_at(&mut client);
        client
            .batch_execute("select pg_reload_conf()")
            .expect("pg_reload_conf");
        wait_for(
            "the settings are loaded again",
            Duration::from_secs(60),
            || loaded_at(&mut self.connect("postgres")) != before,
        );
    }

    /// Starts the server again after [`stop`](Self::stop) or [`crash`](Self::crash), and waits until it answers.
    pub fn start(&mut self) {
        assert!(self.server.is_none(), "the server runs already");
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.log_file())
            .expect("server log");
        let data = self.data_folder();
        let mut command = match self.plan.name_server {
            Some(address) => {
                dns::in_namespace(&self.folder, address, self.programs.join("postgres"))
            }
            None if self.plan.small_disk.is_some() => self.on_small_disk(),
            None => self.as_server(&self.programs.join("postgres")),
        };
        command
            .arg("-D")
            .arg(&data)
            // What the tests' own panics are to show is no business of the server.
            .env_remove("RUST_BACKTRACE")
            .envs(self.plan.environment.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("server log"))
            .stderr(log);
        // Away from the terminal's signals: an interrupted test run ends its servers by the watchdog.
        command.process_group(0).current_dir("/");
        self.server = Some(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("could not start {command:?}: {error}")),
        );
        wait_until(
            "the server accepts connections",
            Duration::from_secs(120),
            || {
                if let Some(status) = self
                    .server
                    .as_mut()
                    .and_then(|server| server.try_wait().ok().flatten())
                {
                    panic!(
                        "the server ended at its start ({status}):\n{}",
                        self.log_tail(30)
                    );
                }
                self.try_connect("postgres").ok()
            },
        );
    }

    /// Stops the server and returns how long that took.
    pub fn stop(&mut self, how: Shutdown) -> Duration {
        let start = Instant::now();
        let Some(mut server) = self.server.take() else {
            return Duration::ZERO;
        };
        let signal = match how {
            Shutdown::Smart => Signal::SIGTERM,
            Shutdown::Fast => Signal::SIGINT,
            Shutdown::Immediate => Signal::SIGQUIT,
        };
        // An error means that it has ended by itself.
        let _ = kill(pid_of(&server), signal);
        wait_for("the server ends", Duration::from_secs(120), || {
            !matches!(server.try_wait(), Ok(None))
        });
        start.elapsed()
    }

    /// Stops the server and starts it again.
    pub fn restart(&mut self, how: Shutdown) {
        self.stop(how);
        self.start();
    }

    /// Kills the postmaster and all of its processes at once, as a power cut would; [`start`](Self::start) recovers.
    pub fn crash(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let postmaster = pid_of(&server);
        // Stopped, so that it starts no more children while they are being listed.
        let _ = kill(postmaster, Signal::SIGSTOP);
        // A signal takes its time when the process runs just then.
        wait_for(
            "the postmaster stands still",
            Duration::from_secs(30),
            || stands_still(postmaster.as_raw()),
        );
        let family = descendants(postmaster.as_raw());
        let _ = kill(postmaster, Signal::SIGKILL);
        for pid in &family {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let _ = server.wait();
        wait_for(
            "all processes of the server are gone",
            Duration::from_secs(60),
            || !family.iter().any(|pid| runs(*pid)),
        );
    }

    /// Kills the postmaster alone. Its children have to see that for themselves: until the last of them has ended,
    /// nobody can start the server again. Fails when one of them stays.
    pub fn kill_postmaster(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let postmaster = pid_of(&server);
        let family = descendants(postmaster.as_raw());
        let _ = kill(postmaster, Signal::SIGKILL);
        let _ = server.wait();
        let deadline = Instant::now() + Duration::from_secs(60);
        while family.iter().any(|pid| runs(*pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut left = Vec::new();
        for pid in family.into_iter().filter(|pid| runs(*pid)) {
            left.push(fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        assert!(left.is_empty(), "they outlive their postmaster: {left:?}");
    }

    /// Sends a signal to one process of this server, and refuses any other.
    pub fn signal(&self, pid: i32, signal: Signal) {
        let postmaster = self.postmaster();
        assert!(
            pid == postmaster || descendants(postmaster).contains(&pid),
            "process {pid} is not one of this cluster"
        );
        // An error means that it has ended meanwhile.
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// Whether one of this server's processes has this id.
    pub fn has_process(&self, pid: i32) -> bool {
        descendants(self.postmaster()).contains(&pid) && runs(pid)
    }

    /// The process id of the postmaster.
    pub fn postmaster(&self) -> i32 {
        pid_of(self.server.as_ref().expect("the server runs")).as_raw()
    }

    /// The major version of the server.
    pub fn major(&self) -> u32 {
        let text = pg_config(&self.plan.pg_config, "--version");
        let digits: String = text
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits
            .parse()
            .unwrap_or_else(|_| panic!("cannot read the version \"{text}\""))
    }

    /// A client or server program of this version, run as the server's user and connected to this cluster.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.as_server(&self.programs.join(name));
        command
            .env("PGHOST", &self.folder)
            .env("PGPORT", "5432")
            .env("PGUSER", "postgres")
            .current_dir("/");
        command
    }

    /// Where the extension's scripts lie. Tests may add to them what has a name of its own.
    pub fn scripts(&self) -> PathBuf {
        Path::new(&pg_config(&self.plan.pg_config, "--sharedir")).join("extension")
    }

    /// All that the server has logged since the cluster was made.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    /// The last lines of [`log`](Self::log).
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// The folder of the Unix socket, which is also a place for a test's own files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The data folder.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn made_by(plan: Plan) -> Cluster {
        let folder = place::temporary_folder();
        let mut cluster = Cluster {
            programs: pg_config(&plan.pg_config, "--bindir").into(),
            watchdog: watchdog(&folder),
            folder,
            plan,
            server: None,
        };
        cluster.initialise();
        cluster.start();
        cluster
    }

    fn initialise(&self) {
        let data = self.data_folder();
        let mut command = self.as_server(&self.programs.join("initdb"));
        command
            .args([
                "-A",
                "trust",
                "-N",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "-D",
            ])
            .arg(&data);
        let output = command
            .current_dir("/")
            .output()
            .unwrap_or_else(|error| panic!("could not run initdb: {error}"));
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let main = data.join("postgresql.conf");
        let mut text = fs::read_to_string(&main).expect("postgresql.conf");
        text.push_str("\ninclude = 'test.conf'\n");
        fs::write(&main, text).expect("postgresql.conf");
        self.write_settings();
    }

    fn write_settings(&self) {
        let mut text = format!("unix_socket_directories = '{}'\n", self.folder.display());
        for (name, value) in &self.plan.settings {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        // Renamed into place: a reload under way reads the old file or the new one.
        let new = self.data_folder().join("test.conf.new");
        fs::write(&new, text).expect("test.conf");
        place::give_to_server(&new);
        fs::rename(&new, self.data_folder().join("test.conf")).expect("test.conf");
    }

    fn as_server(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = place::server_user() {
            command.uid(user).gid(group);
        }
        command
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of the server log:\n{}", self.log_tail(40));
        }
        if let Some(server) = &mut self.server {
            let _ = kill(pid_of(server), Signal::SIGQUIT);
            let end = Instant::now() + Duration::from_secs(10);
            while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.crash();
        let _ = fs::remove_dir_all(&self.folder);
        // The watchdog sees that the folder is gone and has nothing to do.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

fn pg_config(program: &Path, option: &str) -> String {
    let output = Command::new(program).arg(option).output();
    let output =
        output.unwrap_or_else(|error| panic!("could not run {}: {error}", program.display()));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn loaded_at(client: &mut Client) -> String {
    client
        .query_one("select pg_conf_load_time()::text", &[])
        .expect("pg_conf_load_time")
        .get(0)
}
