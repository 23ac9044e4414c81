//! A program of the folder `examples/`, running as a reader would run it: what it says line by line. Refuses to know
//! what it is for.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::{outbox::PATIENCE, place, wait::wait_for};

/// The running program; it ends with this.
pub struct Example {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Example {
    /// The path of an example.
    pub fn path(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../examples")
            .join(name)
    }

    /// Starts a Python program with these arguments and one variable of its environment.
    pub fn start(name: &str, arguments: &[&str], variable: (&str, &str)) -> Example {
        let mut process = Command::new(place::build().join("venv/bin/python"))
            .arg(Self::path(name))
            .args(arguments)
            .env(variable.0, variable.1)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example: run `make setup`");
        let output = process.stdout.take().expect("the output of the example");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                of_thread.lock().expect("the lines").push(line);
            }
        });
        Example { process, lines }
    }

    /// Waits until it has said a line.
    #[track_caller]
    pub fn says(&self, wanted: &str) {
        wait_for(&format!("the example says: {wanted}"), PATIENCE, || {
            let lines = self.lines.lock().expect("the lines");
            lines.iter().any(|line| line == wanted)
        });
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
