//! Nothing public is forgotten: every function, view, column and setting has a comment, stands in the manual, is named by a test,
//! and somebody has decided who may use it. The reference is what the catalogue says, and messages that the manual quotes
//! exist.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use postgres::Client;
use webhook_outbox_test::cluster::Cluster;

/// Functions that no kind of right includes, by decision: whoever may execute them may give himself everything, or
/// needs the owner's rights.
const OWNER_ALONE: [&str; 4] = [
    "grant_access",
    "revoke_access",
    "reencrypt_secrets",
    "rotate_seal_key",
];

#[test]
fn every_row_of_the_life_cycle_names_tests_that_exist() {
    let text = page("docs/lifecycle.md");
    // Each row of a table, without its heading and the line below that.
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .filter(|line| !line.starts_with("|---") && !line.starts_with("| what happens |"))
        .collect();
    assert!(!rows.is_empty(), "there are no tables");
    for row in rows {
        let proof = row
            .strip_suffix(" |")
            .and_then(|row| row.rsplit(" | ").next())
            .unwrap_or_default();
        assert!(proof.starts_with('`'), "no test is named: {row}");
        for part in proof.split(';') {
            let (file, names) = part.split_once(':').unwrap_or((part, ""));
            let source = page(&format!("pg_test/{}.rs", file.trim().trim_matches('`')));
            assert!(source.contains("#[test]"), "{file} has no test: {row}");
            for name in names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
            {
                let function = match name.strip_suffix("...") {
                    Some(start) => format!("#[test]\nfn {start}"),
                    None => format!("#[test]\nfn {name}()"),
                };
                assert!(source.contains(&function), "{file} has no {name}: {row}");
            }
        }
    }
}

#[test]
fn every_public_object_has_a_comment_a_page_a_test_and_a_decision_about_rights() {
    let cluster = Cluster::start_usual();
    let mut sql = installed(&cluster);
    let manual = page("docs/sql.md");
    let settings = page("docs/settings.md");
    let tests = tests();
    let named = |words: &[&str]| {
        tests
            .iter()
            .any(|test| words.iter().all(|word| test.contains(*word)))
    };
    let mut lacking = BTreeSet::new();
    let mut seen = 0;

    let query = r"
        select 'function', p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), '') > ''
          from pg_proc p
         where p.pronamespace = 'webhook'::regnamespace and p.proname not like '\_%'
        union all
        select 'view', c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), '') > ''
          from pg_class c
         where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and c.relname not like '\_%'";
    let decided: HashSet<String> = sql
        .query("select name from webhook._access_list()", &[])
        .expect("the list of rights")
        .iter()
        .map(|row| row.get(0))
        .collect();
    for row in sql.query(query, &[]).expect("functions and views") {
        let (kind, name, commented): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
        let heading = match kind.as_str() {
            "view" => format!("\n### `webhook.{name}`\n"),
            _ => format!("\n### `webhook.{name}()`\n"),
        };
        seen += 1;
        for (has, what) in [
            (commented, "comment"),
            (manual.contains(&heading), "section in docs/sql.md"),
            // Not the name alone: those like close and events occur in any prose.
            (named(&[&format!("webhook.{name}")]), "test"),
            (
                decided.contains(&name) != OWNER_ALONE.contains(&name.as_str()),
                "decision about rights",
            ),
        ] {
            if !has {
                lacking.insert(format!("{kind} {name}: no {what}"));
            }
        }
    }

    let query = r"
        select c.relname::text, a.attname::text, coalesce(col_description(c.oid, a.attnum), '') > ''
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
         where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and c.relname not like '\_%'";
    for row in sql.query(query, &[]).expect("columns") {
        let (view, column, commented): (String, String, bool) =
            (row.get(0), row.get(1), row.get(2));
        seen += 1;
        if !commented {
            lacking.insert(format!("column {view}.{column}: no comment"));
        }
        // A file that speaks of the view and of the column: that they stand in docs/sql.md is checked by docs.rs.
        if !named(&[&view, &column]) {
            lacking.insert(format!("column {view}.{column}: no test"));
        }
    }

    let query = r"
        select p.proname::text, c.name
          from pg_proc p
         cross join unnest(p.proargnames, p.proargmodes) as c (name, mode)
         where p.pronamespace = 'webhook'::regnamespace and p.proname not like '\_%' and c.mode in ('o', 'b', 't')";
    let mut columns = 0;
    for row in sql.query(query, &[]).expect("columns of functions") {
        let (function, column): (String, String) = (row.get(0), row.get(1));
        columns += 1;
        if !named(&[&format!("webhook.{function}"), &column]) {
            lacking.insert(format!("column {function}().{column}: no test"));
        }
    }
    assert!(
        columns > 100,
        "only {columns} columns of functions were found"
    );

    sql.batch_execute("load 'webhook_outbox'")
        .expect("the library");
    let query = "select name, coalesce(short_desc, '') > '', context in ('sighup', 'postmaster', 'superuser')
                   from pg_settings where name like 'webhook.%'";
    for row in sql.query(query, &[]).expect("settings") {
        let (name, described, guarded): (String, bool, bool) = (row.get(0), row.get(1), row.get(2));
        let short = name.trim_start_matches("webhook.");
        seen += 1;
        for (has, what) in [
            (described, "description"),
            (
                settings.contains(&format!("| `{name}` |")),
                "row in docs/settings.md",
            ),
            (named(&[short]), "test"),
            (guarded, "superuser's context"),
        ] {
            if !has {
                lacking.insert(format!("setting {name}: no {what}"));
            }
        }
    }
    assert!(seen > 400, "only {seen} objects were found");
    assert!(
        lacking.is_empty(),
        "not complete:\n{}",
        lacking.into_iter().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn every_metric_is_named_by_a_test_of_its_value() {
    let cluster = Cluster::start_usual();
    let mut sql = installed(&cluster);
    let tests = tests();
    let families: Vec<String> = sql
        .query("select family from webhook._metric_list()", &[])
        .expect("the metrics")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(families.len() > 30, "{families:?}");
    let lacking: Vec<&String> = families
        .iter()
        .filter(|family| {
            // A histogram is read by its samples.
            let names = ["", "_bucket", "_sum", "_count"].map(|part| format!("{family}{part}"));
            !tests
                .iter()
                .any(|test| names.iter().any(|name| test.contains(name)))
        })
        .collect();
    assert!(lacking.is_empty(), "no test names {lacking:?}");
}

#[test]
fn reference_is_what_the_catalogue_says() {
    let cluster = Cluster::start_usual();
    installed(&cluster);
    let said = cluster
        .program("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "shop", "-f"])
        .arg(root().join("docs/reference.sql"))
        .output()
        .expect("psql");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let wanted = String::from_utf8(said.stdout).expect("text");
    let found = page("docs/reference.md");
    if let Some((number, (wanted, found))) = (1..)
        .zip(wanted.lines().zip(found.lines()))
        .find(|(_, (wanted, found))| wanted != found)
    {
        panic!(
            "docs/reference.md:{number} is out of date: run `make reference`\nthere: {found}\nbut:   {wanted}"
        );
    }
    assert_eq!(
        wanted.lines().count(),
        found.lines().count(),
        "docs/reference.md is out of date: run `make reference`"
    );
}

#[test]
fn every_message_in_troubleshooting_is_one_of_the_source() {
    let source = sources();
    let mut invented = String::new();
    let mut messages = 0;
    for row in page("docs/troubleshooting.md")
        .lines()
        .filter(|line| line.starts_with("| `"))
    {
        let message = row.split('`').nth(1).expect("a message");
        messages += 1;
        if !says(&source, message) {
            let _ = writeln!(invented, "{message}");
        }
    }
    assert!(messages > 30, "only {messages} messages were found");
    assert!(invented.is_empty(), "no such message:\n{invented}");
    assert!(!says(&source, "the moon is made of cheese"));
    assert!(!says(&source, "endpoint ... is made of cheese"));
}

#[test]
fn every_kind_of_alert_has_its_row_in_operations_and_in_the_sql_reference() {
    let (operations, reference) = (page("docs/operations.md"), page("docs/sql.md"));
    let kinds = kinds_of_alerts();
    assert!(kinds.len() >= 13, "{kinds:?}");
    for kind in kinds {
        assert!(
            operations.contains(&format!("`{kind}`")) && reference.contains(&format!("`{kind}`")),
            "nothing about the alert {kind}"
        );
    }
}

#[test]
fn every_kind_of_alert_is_raised_in_a_test() {
    let scripts = root().join("pg_test/sql");
    let tests: Vec<String> = files_of_tests()
        .into_iter()
        .filter(|(file, _)| {
            file.extension().is_some_and(|kind| kind == "rs") || file.starts_with(&scripts)
        })
        .map(|(_, text)| text)
        .collect();
    for kind in kinds_of_alerts() {
        // As one text: comments and lists of several are no tests of it.
        let quotes = [format!("\"{kind}\""), format!("'{kind}'")];
        assert!(
            tests
                .iter()
                .any(|test| quotes.iter().any(|quoted| test.contains(quoted))),
            "no test raises the alert {kind}"
        );
    }
}

#[test]
fn vectors_that_are_published_are_those_that_are_tested() {
    let readme = page("docs/vectors/README.md");
    let mut published = 0;
    for file in files(&root().join("docs/vectors")) {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        if name == "README.md" {
            continue;
        }
        published += 1;
        let text = fs::read_to_string(&file).expect("vectors");
        assert!(
            text == page(&format!("pg_test/vectors/{name}")),
            "docs/vectors/{name} is another file than the one that is tested"
        );
        let rows = text.lines().count();
        assert!(
            readme.contains(&format!("| [{name}]({name}) | {rows} |")),
            "docs/vectors/README.md does not say that {name} has {rows} rows"
        );
    }
    assert_eq!(published, 3);
}

/// What the leader may raise, as its source has it.
fn kinds_of_alerts() -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    for file in files(&root().join("src/pg")) {
        let text = fs::read_to_string(&file).expect("a source");
        // Texts like "endpoint.warning" are kinds of alerts and nothing else.
        for text in text.split('"').skip(1).step_by(2) {
            if let Some((of, what)) = text.split_once('.')
                && ["endpoint", "delivery", "event"].contains(&of)
                && what.chars().all(|c| c.is_ascii_lowercase())
            {
                kinds.insert(text.to_owned());
            }
        }
    }
    kinds
}

/// Whether a line of the source has the parts of a message in their order; `...` stands for anything.
fn says(source: &[String], message: &str) -> bool {
    source.iter().any(|line| {
        let mut rest = line.as_str();
        message.split("...").all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    })
}

/// The lines of sql/ and src/ that hold texts, with quotes as they are shown.
fn sources() -> Vec<String> {
    let mut lines = Vec::new();
    for folder in ["sql", "src"] {
        for file in files(&root().join(folder)) {
            let text = fs::read_to_string(&file).expect("a source");
            lines.extend(
                text.lines()
                    .map(|line| line.replace("\\\"", "\"").replace("''", "'")),
            );
        }
    }
    lines
}

/// The words of each file of tests, and `webhook.` with the word after it.
fn tests() -> Vec<HashSet<String>> {
    files_of_tests()
        .into_iter()
        .map(|(_, text)| {
            let between = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            let names = text
                .split("webhook.")
                .skip(1)
                .filter_map(|rest| rest.split(between).next())
                .map(|name| format!("webhook.{name}"));
            text.split(between)
                .map(str::to_owned)
                .chain(names)
                .collect()
        })
        .collect()
}

/// The files of tests; expected outputs list everything and prove nothing, and so do install.sql, the script of a former
/// version, and this file.
fn files_of_tests() -> Vec<(PathBuf, String)> {
    files(&root().join("pg_test"))
        .into_iter()
        .filter(|file| {
            let path = file.to_string_lossy();
            let kind = file.extension().and_then(|kind| kind.to_str());
            matches!(kind, Some("rs" | "sql" | "spec"))
                && !path.contains("/out/")
                && !path.ends_with("completeness.rs")
                && !path.ends_with("sql/install.sql")
                && !path.contains("/upgrade/webhook_outbox--")
        })
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a test");
            (file, text)
        })
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn installed(cluster: &Cluster) -> Client {
    let mut sql = cluster.create_database("shop");
    sql.batch_execute("create extension webhook_outbox")
        .expect("the extension");
    sql
}

fn page(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project's folder")
        .to_owned()
}
