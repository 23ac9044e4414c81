//! The README is followed by a new user, block by block and in its order: from the settings to the first delivery at a receiver of
//! his own. What installs packages is not run; the build command is asked of make without running it. (packaging/readme runs
//! all of it, in a system that has nothing but Debian and Rust.)

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use webhook_outbox_test::{
    cluster::Cluster,
    dns::DnsServer,
    example::{Example, python},
    outbox::{Outbox, PATIENCE},
    wait::wait_for,
};

/// A block of the README: the word behind its fence, and its lines.
struct Block {
    kind: String,
    text: String,
}

#[test]
fn a_new_user_gets_from_the_readme_to_a_delivery_at_his_own_receiver() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    assert!(
        readme.lines().count() <= 310,
        "a front door, not a house: {} lines",
        readme.lines().count()
    );
    let start = section(&readme, "## Start in a minute");
    let blocks = blocks(start);
    let of = |kind: &str| -> Vec<&str> {
        blocks
            .iter()
            .filter(|block| block.kind == kind)
            .map(|block| block.text.as_str())
            .collect()
    };

    // The build, as make would do it.
    let commands = of("sh").join("\n");
    let command = |word: &str| {
        commands
            .lines()
            .find(|line| line.contains(word))
            .unwrap_or_else(|| panic!("no command with {word}"))
    };
    let build = command("make install");
    let arguments: Vec<&str> = build.split(' ').skip(1).collect();
    let said = Command::new("make")
        .arg("--dry-run")
        .args(&arguments)
        .current_dir(root())
        .output()
        .expect("make");
    let plan = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && plan.contains("cargo build") && plan.contains("webhook_outbox.so"),
        "{build}: {plan}{}",
        String::from_utf8_lossy(&said.stderr)
    );

    // The settings, as they stand there, and none of the suite's own.
    let dns = DnsServer::start();
    let mut plan = Cluster::plan()
        .name_server(dns.address())
        .without("shared_preload_libraries")
        .without("webhook.allow_http")
        .without("webhook.allow_networks")
        .without("webhook.allowed_ports");
    for line in of("conf").iter().flat_map(|text| text.lines()) {
        let (name, value) = line.split_once(" = ").expect("a setting");
        plan = plan.setting(name, value.trim_matches('\''));
    }
    let cluster = plan.start();
    cluster.create_database("shop");
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port()
        .to_string();

    // The SQL for everybody; names do not resolve, so nothing leaves.
    let sql = of("sql").join("\n");
    assert!(sql.contains("hooks.example.com"));
    psql(&cluster, &sql);

    // The receiver: psql shows the secret, the shell command takes it.
    let local = of("psql");
    assert_eq!(local.len(), 2);
    let said = psql(&cluster, &local[0].replace("8080", &port));
    let secret = said
        .split_whitespace()
        .find(|word| word.starts_with("whsec_"))
        .expect("the secret");
    let command = command("receiver.py")
        .replace("whsec_...", secret)
        .replace("~/receiver/bin/python", &python().to_string_lossy())
        .replace("8080", &port)
        .replace(
            "~/inbox.sqlite",
            &cluster.folder().join("inbox.sqlite").to_string_lossy(),
        );
    let mut shell = Command::new("sh");
    // In place of the shell, so that it ends with the test.
    shell
        .args([
            "-c",
            &command.replacen(
                &python().to_string_lossy().into_owned(),
                &format!("exec {}", python().display()),
                1,
            ),
        ])
        .current_dir(root());
    let receiver = Example::run(shell);
    receiver.says(&format!("listening on http://127.0.0.1:{port}/"));
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_until(&format!(
        "(select state = 'active' from webhook.endpoints where url like '%:{port}/%')"
    ));
    psql(&cluster, local[1]);
    let event = shop.text(
        "select event_id from webhook.events where type = 'order.paid' order by event_id desc limit 1",
    );
    receiver.says(&format!("accepted {event}"));
    wait_for("the delivery is shown", PATIENCE, || {
        shop.is(&format!(
            "exists (select from webhook.deliveries where event_id = '{event}' and state = 'delivered' and last_status = 204)"
        ))
    });
}

/// What psql says to a script, which must not fail.
fn psql(cluster: &Cluster, script: &str) -> String {
    let path = cluster.folder().join("readme.sql");
    fs::write(&path, script).expect("the script");
    let said = cluster
        .program("psql")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", "shop", "-f"])
        .arg(&path)
        .output()
        .expect("psql");
    assert!(
        said.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&said.stderr)
    );
    String::from_utf8(said.stdout).expect("text")
}

/// What stands below a heading, up to the next one of its level.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let begin = text.find(heading).expect("the section") + heading.len();
    let rest = &text[begin..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block {
                kind: kind.to_owned(),
                text: text.join("\n"),
            });
        }
    }
    blocks
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project's folder")
        .to_owned()
}
