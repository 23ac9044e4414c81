//! The threat table is true: every risk of the list is there, has a proof, and every proof exists.

use std::{fs, path::PathBuf};

#[test]
fn every_risk_of_the_threat_table_names_tests_that_exist() {
    let page = read("docs/threats.md");
    let mut missing = Vec::new();
    let mut risks = 0;
    for row in page.lines().filter(|line| line.starts_with("| **API")) {
        risks += 1;
        assert!(row.starts_with(&format!("| **API{risks}** ")), "{row}");
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(columns.len(), 4, "{row}");
        let proofs: Vec<&str> = columns[3].split('`').skip(1).step_by(2).collect();
        assert!(proofs.len() >= 2, "{row}");
        missing.extend(proofs.into_iter().filter(|proof| !exists(proof)));
    }
    assert_eq!(risks, 10);
    assert!(missing.is_empty(), "no such test: {missing:#?}");
    assert!(!exists("tenancy::no_such_test") && !exists("sql/none"));
}

/// `file::function` or `sql/name`.
fn exists(proof: &str) -> bool {
    if let Some(name) = proof.strip_prefix("sql/") {
        return root().join(format!("pg_test/sql/{name}.sql")).exists();
    }
    let Some((file, function)) = proof.split_once("::") else {
        return false;
    };
    let path = match file.strip_prefix("src/") {
        Some(_) => file.to_owned(),
        None => format!("pg_test/{file}.rs"),
    };
    let Ok(text) = fs::read_to_string(root().join(path)) else {
        return false;
    };
    text.contains("#[test]") && text.contains(&format!("fn {function}()"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project's folder")
        .to_owned()
}
