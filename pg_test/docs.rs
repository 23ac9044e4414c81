//! The manual is true: README.md and docs/ are read as a user would read them. Every block of SQL runs with psql, in
//! order, in a fresh server per file; a block marked `sql error` fails with the error that it shows; every public
//! function, view, column and setting is described; links lead somewhere; the receiver example receives.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use webhook_outbox_test::{cluster::Cluster, dns::DnsServer, wait::wait_for};

const SOON: Duration = Duration::from_secs(90);
/// First line of a statement that a file makes by itself; otherwise the reader is taken to have done it.
const INSTALLS: &str = "create extension webhook_outbox";

#[test]
fn every_sql_block_of_the_manual_runs() {
    // Two at a time: each starts a server, and much of a page is waiting.
    let left = Mutex::new(pages());
    let faults = Mutex::new(String::new());
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(page) = next(&left) {
                    let found = run_page(&page);
                    faults.lock().expect("the faults").push_str(&found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("the faults");
    assert!(faults.is_empty(), "the manual is wrong:\n{faults}");
}

#[test]
fn every_function_view_and_column_is_described_in_docs_sql() {
    let cluster = reader_cluster();
    let mut sql = cluster.create_database("manual");
    sql.batch_execute(INSTALLS).expect("the extension");
    let manual = page("docs/sql.md");
    let query = r"
        select p.proname || '()', coalesce(p.proargnames, '{}')
          from pg_proc p
         where p.pronamespace = 'webhook'::regnamespace and p.proname not like '\_%'
        union all
        select c.relname, array_agg(a.attname::text)
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'webhook'::regnamespace and c.relkind = 'v' and c.relname not like '\_%'
         group by c.relname
         order by 1";
    let mut missing = String::new();
    for row in sql.query(query, &[]).expect("the public objects") {
        let (name, parts): (String, Vec<String>) = (row.get(0), row.get(1));
        let Some(section) = section(&manual, &format!("`webhook.{name}`")) else {
            let _ = writeln!(missing, "no section about webhook.{name}");
            continue;
        };
        for part in parts
            .iter()
            .filter(|part| !section.contains(&format!("`{part}`")))
        {
            let _ = writeln!(missing, "webhook.{name}: no word about {part}");
        }
    }
    assert!(
        missing.is_empty(),
        "docs/sql.md is not complete:\n{missing}"
    );
}

#[test]
fn every_setting_is_listed_with_its_default_and_its_range() {
    let cluster = reader_cluster();
    let query = r"
        select name,
               coalesce(nullif(current_setting(name), ''), 'empty'),
               case when min_val is not null then concat_ws(' ', min_val || '–' || max_val, unit) else '' end
          from pg_settings
         where name like 'webhook.%'
         order by name";
    let mut sql = cluster.connect("postgres");
    sql.batch_execute("load 'webhook_outbox'")
        .expect("the library");
    let settings = sql.query(query, &[]).expect("the settings");
    assert!(!settings.is_empty());
    let mut missing = String::new();
    let text = page("docs/settings.md");
    for row in &settings {
        let (name, default, range): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let wanted = format!("| `{name}` | `{default}` | {range}");
        if !text.contains(wanted.trim_end()) {
            let _ = writeln!(missing, "no row that begins with {wanted}");
        }
    }
    let listed = text.matches("\n| `webhook.").count();
    if listed != settings.len() {
        let _ = writeln!(
            missing,
            "{listed} settings are listed, there are {}",
            settings.len()
        );
    }
    assert!(missing.is_empty(), "docs/settings.md:\n{missing}");
}

#[test]
fn every_link_of_the_manual_leads_somewhere() {
    let mut dead = String::new();
    for file in pages() {
        let text = page(&file);
        let folder = root().join(&file).parent().expect("a folder").to_owned();
        for (number, line) in text.lines().enumerate() {
            for target in line.split("](").skip(1) {
                let target = target.split(')').next().unwrap_or_default();
                if target.starts_with("https://") {
                    continue;
                }
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let other = if path.is_empty() {
                    root().join(&file)
                } else {
                    folder.join(path)
                };
                let found = other.exists()
                    && (anchor.is_empty()
                        || fs::read_to_string(&other)
                            .unwrap_or_default()
                            .lines()
                            .any(|line| line.starts_with('#') && slug(line) == anchor));
                if !found {
                    let _ = writeln!(dead, "{file}:{}: {target}", number + 1);
                }
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{dead}");
}

#[test]
fn receiver_example_accepts_verifies_and_recognises_duplicates_and_stale_versions() {
    let cluster = Cluster::start_usual();
    let mut sql = cluster.create_database("example");
    sql.batch_execute(INSTALLS).expect("the extension");
    let port = free_port();
    let endpoint = sql
        .query_one(
            "select secret from webhook.create_endpoint('acme', $1)",
            &[&format!("http://127.0.0.1:{port}/hooks")],
        )
        .expect("an endpoint");
    let receiver = Example::start(port, endpoint.get(0), cluster.folder());
    // It answers the challenge, which is no event to it.
    wait_for("the endpoint is proven", SOON, || {
        let query = "select state = 'active' and verified_by = 'challenge' from webhook.endpoints";
        sql.query_one(query, &[]).expect("endpoints").get(0)
    });

    let emit =
        "select webhook.emit('order.paid', 'acme', '{\"total\": 1.10}', subject_type => 'order',
                                    subject_id => '7', subject_version => $1)";
    let newer: String = sql.query_one(emit, &[&2_i64]).expect("an event").get(0);
    receiver.says(&format!("accepted {newer}"));
    receiver.says(&format!("processed {newer}"));
    let older: String = sql.query_one(emit, &[&1_i64]).expect("an event").get(0);
    receiver.says(&format!("stale {older}"));
    sql.query("select webhook.replay($1)", &[&newer])
        .expect("a replay");
    receiver.says(&format!("duplicate {newer}"));

    // Another secret than the endpoint's: refused, and the sender is told.
    let url = format!("http://127.0.0.1:{port}/hooks");
    sql.query(
        "select webhook.create_endpoint('rival', $1, verify => 'none')",
        &[&url],
    )
    .expect("an endpoint");
    sql.query("select webhook.emit('order.paid', 'rival', '{}')", &[])
        .expect("an event");
    wait_for("the receiver refuses it", SOON, || {
        let query = "select exists (select from webhook.deliveries where state = 'dead' and last_status = 401)";
        sql.query_one(query, &[]).expect("deliveries").get(0)
    });
}

/// The next page to run, if there is one.
fn next(pages: &Mutex<Vec<String>>) -> Option<String> {
    pages.lock().expect("the pages").pop()
}

/// A cluster as its administrator's first one: preloaded, every setting of ours at its default, names unknown.
fn reader_cluster() -> Cluster {
    plan().start()
}

fn plan() -> webhook_outbox_test::cluster::Plan {
    Cluster::plan()
        .without("webhook.allow_http")
        .without("webhook.allow_networks")
        .without("webhook.allowed_ports")
}

/// Runs one page and says what is wrong with it, with file and line.
fn run_page(file: &str) -> String {
    let text = page(file);
    // No request may leave this machine: the names of the manual do not resolve.
    let dns = DnsServer::start();
    let cluster = plan().name_server(dns.address()).start();
    let mut sql = cluster.create_database("manual");
    if !text.contains(INSTALLS) {
        sql.batch_execute(INSTALLS).expect("the extension");
    }
    let (script, errors) = script(&text);
    let path = cluster.folder().join("page.sql");
    fs::write(&path, script).expect("the script");
    let output = cluster
        .program("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "manual", "-f"])
        .arg(&path)
        .output()
        .expect("psql");
    // psql names the script and the line: the script has the lines of the page.
    let said =
        String::from_utf8_lossy(&output.stderr).replace(&format!("psql:{}", path.display()), file);
    if !output.status.success() {
        return said;
    }
    let mut faults = String::new();
    for (line, wanted) in errors {
        let told = said
            .lines()
            .find_map(|told| told.strip_prefix(&format!("@{line} ")))
            .unwrap_or("nothing");
        if !same(&wanted, told) {
            let _ = writeln!(
                faults,
                "{file}:{line}: shows {wanted}, but psql says {told}"
            );
        }
    }
    faults
}

/// Whether psql says what the page shows; `...` on the page stands for anything, such as an id.
fn same(shown: &str, told: &str) -> bool {
    match shown.split_once("...") {
        Some((begin, end)) => told.starts_with(begin) && told.ends_with(end),
        None => shown == told,
    }
}

/// The blocks of SQL of a page as a psql script with the same line numbers, and the errors that its failing blocks
/// show in their last comment, by the line that ends the block.
fn script(text: &str) -> (String, Vec<(usize, String)>) {
    // What psql would repeat without an end is run once.
    let text = (1..=9).fold(text.to_owned(), |text, seconds| {
        text.replace(&format!(" \\watch {seconds}\n"), ";\n")
    });
    let mut script = String::new();
    let mut errors = Vec::new();
    let mut fence: Option<&str> = None;
    let mut shown = String::from("no comment with an error");
    for (number, line) in (1..).zip(text.lines()) {
        let mut out = "";
        let told =
            format!("\\set ON_ERROR_STOP on \\\\ \\warn @{number} :SQLSTATE: :LAST_ERROR_MESSAGE");
        // A block may stand in a list, indented.
        let bare = line.trim_start();
        match fence {
            None if bare.starts_with("```") => {
                fence = Some(bare);
                if bare == "```sql error" {
                    out = "\\set ON_ERROR_STOP off";
                }
            }
            Some(opened) if bare.starts_with("```") => {
                if opened == "```sql error" {
                    errors.push((number, std::mem::take(&mut shown)));
                    out = &told;
                }
                fence = None;
            }
            Some("```sql" | "```sql error") => {
                if let Some(error) = line.strip_prefix("-- ERROR:  ") {
                    error.clone_into(&mut shown);
                }
                out = line;
            }
            _ => {}
        }
        script.push_str(out);
        script.push('\n');
    }
    (script, errors)
}

/// The receiver example, running.
struct Example {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Example {
    fn start(port: u16, secret: &str, folder: &Path) -> Example {
        let mut process = Command::new(root().join("build/venv/bin/python"))
            .arg(root().join("examples/receiver/receiver.py"))
            .arg(port.to_string())
            .arg(folder.join("inbox.sqlite"))
            .env("WEBHOOK_SECRET", secret)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example: run `make setup`");
        let output = process.stdout.take().expect("the output of the example");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                of_thread.lock().expect("the lines").push(line);
            }
        });
        let example = Example { process, lines };
        example.says(&format!("listening on http://127.0.0.1:{port}/"));
        example
    }

    #[track_caller]
    fn says(&self, wanted: &str) {
        wait_for(&format!("the example says: {wanted}"), SOON, || {
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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// README.md and every page of docs/.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = fs::read_dir(root().join("docs"))
        .expect("docs/")
        .map(|entry| entry.expect("docs/").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    pages.sort();
    pages.insert(0, "README.md".to_owned());
    pages
}

/// What stands below a heading, up to the next one.
fn section<'t>(text: &'t str, heading: &str) -> Option<&'t str> {
    let begin = text.find(&format!("\n### {heading}"))? + 1;
    let rest = &text[begin..];
    Some(&rest[..rest.find("\n##").unwrap_or(rest.len())])
}

/// The anchor of a heading, as the usual viewers of Markdown make it.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || "- _".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn page(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .canonicalize()
        .expect("the project's folder")
        .parent()
        .expect("the project's folder")
        .to_owned()
}
