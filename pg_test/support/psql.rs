//! A session of psql in which a test types as somebody would, block after block; what `\gset` keeps stays known.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use crate::{cluster::Cluster, outbox::PATIENCE};

/// What psql says when a block is done.
const DONE: &str = "@done";

/// A running session.
pub struct Psql {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Psql {
    /// A session that ends at the first error, and knows these variables.
    pub fn open(cluster: &Cluster, database: &str, variables: &[(&str, &str)]) -> Psql {
        let errors = cluster.folder().join("psql.err");
        let mut command = cluster.program("psql");
        // Rows alone, with | between the columns.
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        for (name, value) in variables {
            command.arg("-v").arg(format!("{name}={value}"));
        }
        let mut process = command
            .args(["-d", database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("a file"))
            .spawn()
            .expect("psql");
        let output = process.stdout.take().expect("the output of psql");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody reads any more: the test has ended.
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Psql {
            input: process.stdin.take().expect("the input of psql"),
            process,
            lines,
            errors,
        }
    }

    /// Types a block, and returns what psql answers to it.
    ///
    /// # Panics
    /// When there is an error, with what psql says.
    #[track_caller]
    pub fn types(&mut self, block: &str) -> String {
        let sent = writeln!(self.input, "{block}\n\\echo {DONE}").and_then(|()| self.input.flush());
        let mut said = String::new();
        while sent.is_ok() {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == DONE => return said,
                Ok(line) => said = said + &line + "\n",
                Err(_) => break,
            }
        }
        panic!(
            "{block}\n{said}\npsql says: {}",
            fs::read_to_string(&self.errors).unwrap_or_default()
        );
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
