//! What is handed out says of itself what is true: one version everywhere, and a META.json that PGXN takes.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Map, Value};

/// A file of the project.
fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between `before` and `after` on the first line that begins with `before`.
fn stated<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(before))
        .and_then(|rest| rest.split(after).next())
        .unwrap_or_else(|| panic!("no line begins with {before:?}"))
}

#[test]
fn the_version_is_the_same_everywhere_and_every_older_one_can_be_updated() {
    let version = stated(&file("Cargo.toml"), "version = \"", "\"").to_owned();
    assert_eq!(
        stated(&file("webhook_outbox.control"), "default_version = '", "'"),
        version
    );
    assert_eq!(stated(&file("README.md"), "This is ", ". "), version);
    assert_eq!(stated(&file("CHANGELOG.md"), "## ", " "), version);
    let lock = file("Cargo.lock");
    let entry = lock
        .split("[[package]]")
        .find(|entry| entry.contains("name = \"webhook_outbox\"\n"));
    assert_eq!(
        stated(entry.expect("an entry"), "version = \"", "\""),
        version
    );
    let meta = meta();
    assert_eq!(meta["version"], *version);
    assert_eq!(meta["provides"]["webhook_outbox"]["version"], *version);

    let (mut old, mut scripts) = (BTreeSet::new(), BTreeSet::new());
    for (folder, names) in [("upgrade", &mut old), ("../sql", &mut scripts)] {
        for entry in
            fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder")
        {
            let name = entry
                .expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned();
            if let Some(what) = name
                .strip_prefix("webhook_outbox--")
                .and_then(|rest| rest.strip_suffix(".sql"))
            {
                names.insert(what.to_owned());
            }
        }
    }
    // Each released version leads to the next, and the last one to this.
    let from: BTreeSet<String> = scripts
        .iter()
        .filter_map(|script| Some(script.split_once("--")?.0.to_owned()))
        .collect();
    assert_eq!(from, old);
    assert!(
        scripts
            .iter()
            .any(|script| script.ends_with(&format!("--{version}")))
    );
}

#[test]
fn each_version_in_the_changelog_says_whether_the_server_has_to_be_restarted() {
    let text = file("CHANGELOG.md");
    let sections: Vec<&str> = text.split("\n## ").skip(1).collect();
    assert!(sections.len() > 1);
    for section in sections {
        let restart = section
            .lines()
            .find_map(|line| line.strip_prefix("Restart needed: "));
        let restart = restart.unwrap_or_else(|| panic!("{}", section.lines().next().unwrap_or("")));
        assert!(
            restart.starts_with("yes") || restart.starts_with("no"),
            "{restart}"
        );
    }
}

#[test]
fn every_version_that_is_said_to_be_supported_can_be_built() {
    let cargo = file("Cargo.toml");
    let places = file("pg_test/support/places.sh");
    for major in [15, 16, 17, 18] {
        assert!(
            cargo.contains(&format!("pg{major} = [\"dep:pgrx\", \"pgrx/pg{major}\"]")),
            "{major}"
        );
        assert!(places.contains(&major.to_string()), "{major}");
    }
}

fn meta() -> Value {
    serde_json::from_str(&file("META.json")).expect("META.json")
}

/// The rules of the PGXN Meta Spec 1.0.0, as far as this file uses them; what it does not know it complains about.
fn faults(meta: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let Some(top) = meta.as_object() else {
        return vec!["it is no object".into()];
    };
    let mut need = |fits: bool, what: &str| {
        if !fits {
            faults.push(what.to_owned());
        }
    };
    for key in [
        "name",
        "version",
        "abstract",
        "maintainer",
        "license",
        "provides",
        "meta-spec",
    ] {
        need(top.contains_key(key), &format!("{key} is required"));
    }
    let known = [
        "name",
        "version",
        "abstract",
        "maintainer",
        "license",
        "provides",
        "meta-spec",
        "description",
        "generated_by",
        "tags",
        "no_index",
        "prereqs",
        "release_status",
        "resources",
    ];
    for key in top.keys() {
        let own = key.to_lowercase().starts_with("x_");
        need(
            own || known.contains(&&**key),
            &format!("{key} is no key of the spec"),
        );
    }
    need(text(&top["name"]).is_some_and(is_term), "name is a term");
    need(
        text(&top["version"]).is_some_and(is_version),
        "version is a semantic version",
    );
    for key in ["abstract", "description", "generated_by"] {
        need(
            top.get(key).is_none_or(|value| text(value).is_some()),
            &format!("{key} is text"),
        );
    }
    need(
        texts(&top["maintainer"]),
        "maintainer is text or a list of it",
    );
    let licences = [
        "agpl_3",
        "apache_1_1",
        "apache_2_0",
        "artistic_1",
        "artistic_2",
        "bsd",
        "freebsd",
        "gfdl_1_2",
        "gfdl_1_3",
        "gpl_1",
        "gpl_2",
        "gpl_3",
        "lgpl_2_1",
        "lgpl_3_0",
        "mit",
        "mozilla_1_0",
        "mozilla_1_1",
        "openssl",
        "perl_5",
        "postgresql",
        "qpl_1_0",
        "ssleay",
        "sun",
        "zlib",
        "open_source",
        "restricted",
        "unrestricted",
        "unknown",
    ];
    need(
        text(&top["license"]).is_some_and(|licence| licences.contains(&licence)),
        "license is one of the spec's",
    );
    let spec = &top["meta-spec"];
    need(spec["version"] == "1.0.0", "meta-spec.version is 1.0.0");
    need(
        spec.get("url")
            .is_none_or(|url| text(url).is_some_and(|url| url.starts_with("http"))),
        "meta-spec.url is a URL",
    );
    need(
        top.get("release_status").is_none_or(|status| {
            ["stable", "testing", "unstable"]
                .iter()
                .any(|known| status == known)
        }),
        "release_status is stable, testing or unstable",
    );
    need(top.get("tags").is_none_or(texts), "tags are texts");
    let empty = Map::new();
    let provides = top["provides"].as_object().unwrap_or(&empty);
    need(!provides.is_empty(), "provides names an extension");
    for (name, one) in provides {
        need(is_term(name), "what is provided is a term");
        need(
            text(&one["version"]).is_some_and(is_version),
            "provides.version is a semantic version",
        );
        for key in ["file", "docfile"] {
            let path = one.get(key).and_then(Value::as_str);
            let there = |path: &str| {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("..")
                    .join(path)
                    .is_file()
            };
            need(
                path.map_or(key == "docfile", there),
                &format!("provides.{key} is a file of the project"),
            );
        }
    }
    let prereqs = top
        .get("prereqs")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    for (phase, relations) in prereqs {
        need(
            ["configure", "build", "test", "runtime", "develop"].contains(&&**phase),
            "a phase of the spec",
        );
        for (relation, wanted) in relations.as_object().unwrap_or(&empty) {
            need(
                ["requires", "recommends", "suggests", "conflicts"].contains(&&**relation),
                "a relation of the spec",
            );
            for version in wanted.as_object().unwrap_or(&empty).values() {
                need(
                    text(version).is_some_and(is_version),
                    "a prerequisite's version is a semantic version",
                );
            }
        }
    }
    faults
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn texts(value: &Value) -> bool {
    text(value).is_some()
        || value
            .as_array()
            .is_some_and(|list| !list.is_empty() && list.iter().all(|one| text(one).is_some()))
}

/// At least two characters, none of them a control character, a blank, or a slash of either kind.
fn is_term(text: &str) -> bool {
    text.chars().count() > 1
        && !text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "/\\".contains(c))
}

fn is_version(text: &str) -> bool {
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    numbers.split('.').count() == 3
        && numbers.split('.').all(|number| {
            number.parse::<u32>().is_ok() && (number == "0" || !number.starts_with('0'))
        })
}

#[test]
fn pgxn_takes_the_metadata() {
    assert_eq!(faults(&meta()), Vec::<String>::new());
}

#[test]
fn metadata_with_faults_is_found_out() {
    for (place, wrong) in [
        ("/version", "0.2"),
        ("/license", "pg"),
        ("/release_status", "ready"),
        ("/name", "web/hook"),
        ("/meta-spec/version", "2.0.0"),
        ("/provides/webhook_outbox/file", "sql/nowhere.sql"),
        ("/prereqs/runtime/requires/PostgreSQL", "15"),
    ] {
        let mut meta = meta();
        *meta.pointer_mut(place).expect("a place") = wrong.into();
        assert_eq!(faults(&meta).len(), 1, "{place}");
    }
}
