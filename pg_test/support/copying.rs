//! Ways to make a logical copy of a database, with PostgreSQL's own programs.

use std::process::{Command, Output};

use crate::cluster::Cluster;

/// Dumps a database and restores it as another one of the same server.
pub fn dump_and_restore(cluster: &Cluster, from: &str, to: &str) {
    let file = cluster.folder().join(format!("{from}-{to}.dump"));
    let file = file.display().to_string();
    succeed(
        cluster
            .program("pg_dump")
            .args(["-F", "custom", "-f", &file, from]),
    );
    cluster.create_database(to);
    succeed(
        cluster
            .program("pg_restore")
            .args(["--exit-on-error", "-d", to, &file]),
    );
}

/// Makes a database with another one as its template.
pub fn clone_as_template(cluster: &Cluster, from: &str, to: &str) {
    cluster
        .connect("postgres")
        .batch_execute(&format!("create database \"{to}\" template \"{from}\""))
        .expect("a copy of the template");
}

/// The original is no more.
pub fn drop_original(cluster: &Cluster, name: &str) {
    cluster
        .connect("postgres")
        .batch_execute(&format!("drop database \"{name}\" with (force)"))
        .expect("the database is dropped");
}

/// Runs a program that is to succeed and to complain of nothing.
#[track_caller]
fn succeed(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().expect("a program of PostgreSQL");
    let said = String::from_utf8_lossy(&stderr);
    assert!(
        status.success() && said.is_empty(),
        "{command:?}: {status}\n{said}"
    );
}
