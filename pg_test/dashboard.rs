//! The page of `webhook.dashboard()` in a real browser: it fits a wide and a narrow window, light and dark; it asks
//! nobody for anything and complains of nothing; and whatever somebody writes into a name or a reason stays text.

use std::path::Path;

use serde_json::Value;
use webhook_outbox_test::{
    cluster::Cluster,
    monitoring::{Folder, browse},
    outbox::{Outbox, PATIENCE},
    receiver::{Answer, Receiver, Request},
    say,
    wait::wait_for,
};

const HOSTILE: &str = "<script>parent.evil=1;fetch(\"https://example.com/\")</script>\"'><img src=x onerror=parent.evil=2>";
const RIGHT_TO_LEFT: &str = "שלום \u{202e}gnorw si siht\u{202c} مرحبا";

/// Loads the page in frames of several widths, measures each and says so in its own text.
const PROBE: &str = r#"<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><pre id="told">nothing</pre>
<script>
const told = [];
async function look(width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border:0;width:${width}px;height:900px`;
  frame.src = "/page";
  const loaded = new Promise(done => frame.onload = done);
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument;
  const wide = frame.contentWindow.innerWidth;
  const beyond = [...page.body.querySelectorAll("*")].filter(element => !element.closest("svg"))
    .filter(element => element.getBoundingClientRect().right > wide + 1 || element.getBoundingClientRect().left < -1)
    .map(element => element.outerHTML.slice(0, 200));
  told.push({
    width: wide, scroll: page.documentElement.scrollWidth, beyond, text: page.body.innerText, title: page.title,
    scripts: page.querySelectorAll("script,img,iframe,object,embed,form,link:not([rel=icon])").length,
    handlers: [...page.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).length,
    links: page.querySelectorAll("[href]:not(link),[src],[action]").length,
    resources: frame.contentWindow.performance.getEntriesByType("resource").length,
    charts: page.querySelectorAll("figure.chart svg").length,
    drawn: [...page.querySelectorAll("figure.chart")].map(f => f.querySelectorAll("rect.bar").length +
      [...f.querySelectorAll("path.trace")].filter(p => p.getAttribute("d")).length),
    small: [...page.body.querySelectorAll("*")].filter(e => e.children.length === 0 && e.innerText?.trim())
      .filter(e => parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) < 11).length,
  });
}
(async () => {
  for (const width of [1280, 901, 768, 400, 320]) await look(width);
  document.getElementById("told").textContent = JSON.stringify({frames: told, evil: window.evil ?? null});
})();
</script>"#;

#[test]
fn the_page_fits_every_window_asks_nobody_for_anything_and_shows_hostile_names_as_text() {
    let cluster = Cluster::plan()
        .setting("webhook.retry_schedule", "1h")
        .start();
    let mut shop = troubled(&cluster);
    let page = shop.text("select webhook.dashboard()");
    assert!(
        !page.contains("<script") && !page.contains("<img"),
        "{page}"
    );
    // What it must not tell.
    for secret in ["whsec_", "127.0.0.1", "confidential"] {
        assert!(!page.contains(secret), "{secret} in the page");
    }

    let site = Receiver::http();
    serve(&site, "/page", page.clone());
    serve(&site, "/probe", PROBE.to_owned());
    let folder = Folder::new();
    let (document, log) = browse(&site.url("/probe"), &folder, &["--dump-dom"]);
    assert!(!log.contains("CONSOLE"), "{log}");
    let told = document
        .split_once("<pre id=\"told\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .map(|(told, _)| unescaped(told))
        .unwrap_or_else(|| panic!("the probe says nothing: {document}\n{log}"));
    let told: Value =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}\n{log}"));
    assert_eq!(told["evil"], Value::Null, "a script of the page has run");
    let frames = told["frames"].as_array().expect("frames");
    assert_eq!(frames.len(), 5);
    for frame in frames {
        let width = frame["width"].as_i64().expect("a width");
        assert!(frame["scroll"].as_i64() <= Some(width), "{width}: {frame}");
        assert_eq!(frame["beyond"], Value::Array(Vec::new()), "beyond {width}");
        for nothing in ["scripts", "handlers", "links", "resources", "small"] {
            assert_eq!(frame[nothing], 0, "{nothing} at {width}");
        }
        assert_eq!(frame["charts"], 6);
        let drawn = frame["drawn"].as_array().expect("charts");
        assert!(drawn.iter().all(|n| n.as_i64() > Some(0)), "{drawn:?}");
        let text = frame["text"].as_str().expect("text");
        // Cut after 300 characters.
        let shown: String = HOSTILE.chars().take(40).collect();
        assert!(text.contains(&shown), "{text}");
        assert!(text.contains("שלום \u{fffd}gnorw"), "{text}");
    }
    assert!(
        frames[0]["title"]
            .as_str()
            .is_some_and(|title| title.contains("<b>"))
    );
    // Nobody was asked for anything but the two pages.
    let asked: Vec<String> = site
        .requests()
        .iter()
        .map(|request| request.target.clone())
        .collect();
    assert!(
        asked
            .iter()
            .all(|target| target == "/page" || target == "/probe"),
        "{asked:?}"
    );

    // For eyes: kept where the other results of tests are.
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/dashboard");
    std::fs::create_dir_all(&out).expect("a folder for the pictures");
    for (name, options) in [
        (
            "wide",
            [
                "--window-size=1280,1700",
                "--blink-settings=preferredColorScheme=1",
            ],
        ),
        (
            "narrow",
            [
                "--window-size=400,3600",
                "--blink-settings=preferredColorScheme=1",
            ],
        ),
        (
            "wide-dark",
            [
                "--window-size=1280,1700",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
        (
            "narrow-dark",
            [
                "--window-size=400,3600",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
    ] {
        let picture = folder.path().join(format!("{name}.png"));
        let target = format!("--screenshot={}", picture.display());
        let (_, log) = browse(
            &site.url("/page"),
            &folder,
            &[options[0], options[1], "--hide-scrollbars", &target],
        );
        assert!(!log.contains("CONSOLE"), "{log}");
        let size = std::fs::copy(&picture, out.join(format!("{name}.png"))).expect("a picture");
        assert!(size > 10_000, "{name}: {size} bytes");
        // As wide as it says: a browser may have a narrowest window. The width stands in the first chunk of a PNG.
        let bytes = std::fs::read(&picture).expect("the picture");
        let wanted: u32 = if name.starts_with("wide") { 1280 } else { 400 };
        assert_eq!(bytes[16..20], wanted.to_be_bytes(), "{name}");
    }
    let paper = folder.path().join("page.pdf");
    let target = format!("--print-to-pdf={}", paper.display());
    browse(
        &site.url("/page"),
        &folder,
        &[&target, "--no-pdf-header-footer"],
    );
    let size = std::fs::copy(&paper, out.join("page.pdf")).expect("a PDF");
    say!(
        "dashboard(): {} bytes, 5 widths; PDF of {size} bytes; pictures in {}",
        page.len(),
        out.display()
    );
}

#[test]
fn an_empty_database_and_one_without_a_leader_have_a_page() {
    let mut cluster = Cluster::start_usual();
    let page = Outbox::create(&cluster, "shop").text("select webhook.dashboard()");
    for said in [
        "leader: running",
        "No endpoint fails.",
        "No delivery waits for a decision.",
        "No alert is kept.",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    cluster.reload(&[("webhook.enabled", "off")]);
    let mut shop = Outbox::join(&cluster, "shop");
    shop.wait_for_worker("off");
    let page = shop.text("select webhook.dashboard()");
    assert!(
        page.contains("leader: off") && page.contains("Set webhook.enabled to on"),
        "{page}"
    );
}

/// A database whose name is markup, with endpoints that fail, dead letters and alerts, and texts of users that are
/// meant to do harm.
fn troubled(cluster: &Cluster) -> Outbox<'_> {
    let name = "shop <b>\"&amp;'";
    cluster
        .connect("postgres")
        .batch_execute(&format!(
            "create database \"{}\"",
            name.replace('"', "\"\"")
        ))
        .expect("the database");
    let mut shop = Outbox::join(cluster, name);
    shop.run("create extension webhook_outbox");
    shop.wait_for_worker("running");
    let receiver = Receiver::http();
    receiver.behave("/fails", |_| Answer::status(503).body("confidential"));
    receiver.behave("/refuses", |_| Answer::status(422));
    let long = "x".repeat(128);
    let fine = shop.endpoint("acme", &receiver.url("/takes"));
    for partner in ["acme", &long, "globex"] {
        let failing = shop.endpoint(partner, &receiver.url("/fails"));
        let refusing = shop.endpoint(partner, &receiver.url("/refuses"));
        for _ in 0..12 {
            let event = shop.emit("order.paid", partner, "{\"note\": \"confidential\"}");
            shop.wait_for_state(&event, &refusing, "dead");
        }
        shop.wait_for_health(&failing, "failures > 0");
        shop.wait_for_health(&refusing, "failures > 0");
    }
    shop.wait_until(&format!(
        "(select count(*) = 12 from webhook.deliveries where endpoint_id = {} and state = 'delivered')",
        fine.id
    ));
    // Reasons are free text, and stand in alerts.
    for (partner, reason) in [
        ("evil", HOSTILE),
        ("rtl", RIGHT_TO_LEFT),
        ("long", &"w".repeat(900)),
    ] {
        let endpoint = shop.endpoint(partner, &receiver.url("/takes"));
        shop.sql
            .execute(
                "select webhook.disable_endpoint($1, $2)",
                &[&endpoint.id, &reason],
            )
            .expect("disabled");
    }
    wait_for("the alerts are there", PATIENCE, || {
        shop.number("select count(*) from webhook.alerts where kind = 'endpoint.disabled'") == 3
    });
    shop
}

fn serve(site: &Receiver, path: &str, page: String) {
    site.behave(path, move |_: &Request| {
        Answer::status(200)
            .header("Content-Type", "text/html; charset=utf-8")
            .body(page.clone())
            .and_close()
    });
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}
