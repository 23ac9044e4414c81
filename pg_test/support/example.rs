//! A program of the folder `examples/`, running as a reader would run it: what it says line by line. Refuses to know
//! what it is for.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    outbox::PATIENCE,
    place,
    wait::{wait_for, wait_until},
};

/// The Python that has the public libraries.
pub fn python() -> PathBuf {
    place::build().join("venv/bin/python")
}

/// The folder of the modules of Node.
pub fn node_modules() -> PathBuf {
    place::build().join("peers/node_modules")
}

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
        let mut command = Command::new(python());
        command
            .arg(Self::path(name))
            .args(arguments)
            .env(variable.0, variable.1);
        Self::run(command)
    }

    /// Starts any program.
    pub fn run(mut command: Command) -> Example {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}, run `make setup`: {error}"));
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

    /// All that it has said so far.
    pub fn said(&self) -> Vec<String> {
        self.lines.lock().expect("the lines").clone()
    }

    /// Waits until it has ended by itself, and returns whether it succeeded.
    #[track_caller]
    pub fn ends(&mut self) -> bool {
        wait_until("the example ends", PATIENCE, || {
            self.process.try_wait().expect("the example")
        })
        .success()
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
