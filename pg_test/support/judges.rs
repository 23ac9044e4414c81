//! Public receivers of Python and Node, each in a process of its own, which judge recorded requests. What they are given
//! and what they answer stands in peers/judge.py and peers/judge.mjs.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::place;

/// What the libraries of one language ("python" or "node") say about each request.
pub fn verdicts(judge: &str, cases: &[Value]) -> Vec<String> {
    let peers = place::build().join("peers");
    let (program, script) = match judge {
        "python" => (place::build().join("venv/bin/python"), "judge.py"),
        _ => ("node".into(), "judge.mjs"),
    };
    let mut child = Command::new(program)
        .arg(peers.join(script))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the judge in {judge}, run `make setup`: {error}"));
    let mut input = child.stdin.take().expect("the judge's input");
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    // Written beside the reading, or both pipes could fill.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the judge");
    writer
        .join()
        .expect("the writing thread")
        .expect("the judge's input");
    assert!(
        output.status.success(),
        "the judge in {judge} failed: {}",
        output.status
    );
    let said = String::from_utf8(output.stdout).expect("the judge's output");
    let verdicts: Vec<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(
        verdicts.len(),
        cases.len(),
        "one verdict in {judge} for each request"
    );
    verdicts
}
