//! The processes of a cluster: who belongs to it, who still runs, and the watchdog that outlives the test.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::unistd::Pid;

/// A shell that waits for the end of this process (its standard input ends) and then puts right what was left.
pub(super) fn watchdog(folder: &Path) -> Child {
    const SCRIPT: &str = r#"
        cat >/dev/null
        pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
        for i in 1 2 3 4 5 6 7 8 9 10; do
            [ -e "$1/data/postmaster.pid" ] || break
            sleep 0.5
        done
        rm -rf "$1"
    "#;
    let mut command = Command::new("sh");
    command
        .args(["-c", SCRIPT, "sh"])
        .arg(folder)
        .process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("a watchdog for the cluster")
}

/// The process id of a child.
pub(super) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a process id"))
}

/// The processes below `ancestor`, by /proc.
pub(super) fn descendants(ancestor: i32) -> Vec<i32> {
    let processes: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| Some((pid, stat(pid)?.1)))
        .collect();
    let mut family = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(
            processes
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    family.split_off(1)
}

/// Whether a process still runs.
pub(super) fn runs(pid: i32) -> bool {
    // An orphan that nobody reaps yet (Z) runs no more, unless it has threads that still end: they hold its memory.
    stat(pid).is_some_and(|(state, _)| state != 'Z' || threads(pid) > 1)
}

/// Whether a process was stopped by a signal, or runs no more.
pub(super) fn stands_still(pid: i32) -> bool {
    stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// State and parent of a process.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
