//! What watches a database from outside: Debian's Prometheus, its exporter for PostgreSQL and a browser without a
//! window, as `monitoring.sh` unpacked them. They run as the server's user, listen on the loopback network only, and
//! end with whoever started them, even if the test process is killed.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{outbox::Outbox, place, wait::wait_for};

/// How long one of them may take to answer for the first time.
const SOON: Duration = Duration::from_secs(90);

/// A program that was started, with what it says in a file.
pub struct Watcher {
    process: Child,
    log: PathBuf,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
}

/// A folder for its files, gone with it.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    pub fn new() -> Folder {
        Folder(place::temporary_folder())
    }

    /// A file in it that the programs can read.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file of the test");
        place::give_to_server(&path);
        path
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program of Debian by its path below the root, as the server's user.
pub fn program(path: &str, home: &Path) -> Command {
    let build = place::build().join("monitoring");
    let root = build.join("root");
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let program = root.join(path);
    assert!(
        program.exists(),
        "no {}: run `make setup`",
        program.display()
    );
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .env_remove("RUST_BACKTRACE")
        .env(
            "LD_LIBRARY_PATH",
            format!("{0}:{0}/pulseaudio", libraries.display()),
        )
        .env("FONTCONFIG_FILE", build.join("fonts.conf"))
        .env("HOME", home)
        .env("XDG_CACHE_HOME", home)
        .current_dir(home)
        .stdin(Stdio::null());
    if let Some((user, group)) = place::server_user() {
        use std::os::unix::process::CommandExt as _;
        command.uid(user).gid(group);
    }
    command
}

/// The value of a sample of `webhook.metrics()`, by its name with its labels.
#[track_caller]
pub fn sample(shop: &mut Outbox<'_>, name: &str) -> f64 {
    let text = shop.text("select webhook.metrics()");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    line.parse().unwrap_or_else(|_| panic!("{name} is {line}"))
}

/// Whether `promtool` accepts something that it reads from its standard input or from files.
pub fn promtool(arguments: &[&str], input: &str) -> Output {
    let folder = Folder::new();
    let mut process = program("usr/bin/promtool", folder.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    let mut pipe = process.stdin.take().expect("its input");
    pipe.write_all(input.as_bytes()).expect("its input");
    drop(pipe);
    process.wait_with_output().expect("promtool")
}

impl Watcher {
    /// Starts a program that is told where to listen, and waits until it answers `path`.
    pub fn start(
        program: &str,
        folder: &Folder,
        path: &str,
        set_up: impl FnOnce(&mut Command, u16),
    ) -> Watcher {
        let port = free_port();
        let name = program.rsplit('/').next().unwrap_or(program);
        let log = folder.file(&format!("{name}.log"), "");
        let said = fs::File::create(&log).expect("its log");
        let mut command = self::program(program, folder.path());
        set_up(&mut command, port);
        let process = command
            .stdout(said.try_clone().expect("its log"))
            .stderr(said)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let watcher = Watcher { process, log, port };
        wait_for(&format!("{name} answers"), SOON, || {
            watcher.try_get(path).is_some()
        });
        watcher
    }

    /// The body of a page.
    #[track_caller]
    pub fn get(&self, path: &str) -> String {
        self.try_get(path)
            .unwrap_or_else(|| panic!("no answer to {path}; it says:\n{}", self.says()))
    }

    fn try_get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(SOON)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.lines()
            .next()?
            .contains(" 200 ")
            .then(|| body.to_owned())
    }

    /// The series that a Prometheus answers an expression with.
    #[track_caller]
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let Some(answer) = self.try_get(&path) else {
            panic!("Prometheus refuses {expression}; it says:\n{}", self.says());
        };
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// What it wrote to its log.
    pub fn says(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a browser on a page until it is done with it, and returns what it says: the document, and its log.
pub fn browse(url: &str, folder: &Folder, options: &[&str]) -> (String, String) {
    let started = Instant::now();
    let output = program("usr/lib/chromium/chromium-headless-shell", folder.path())
        .args([
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .args(options)
        .arg(url)
        .output()
        .expect("the browser");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "the browser ended with {} after {:?}: {log}",
        output.status,
        started.elapsed()
    );
    (String::from_utf8_lossy(&output.stdout).into_owned(), log)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        use std::fmt::Write as _;
        let _ = write!(all, "%{byte:02X}");
        all
    })
}
