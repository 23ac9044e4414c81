//! The page that `webhook.dashboard()` returns: one HTML text that needs nothing else. No script, no request to anybody:
//! its policy forbids both, so that a name which slipped through as markup could do nothing.
//!
//! Draws what it is given and decides nothing: what a reader may see was decided when the data was read. Every text of
//! a user is escaped here, by one function, and set apart from the direction of its neighbours.

mod chart;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::Value;

/// Characters of a text that are shown.
const LONGEST: usize = 300;

/// How a column of a table is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// A short text that is not broken into lines while there is room.
    Fixed,
    /// Its words have colours.
    Word,
}

type Column = (&'static str, &'static str, Kind);

/// The page. Members that are missing are left out.
pub fn page(data: &Value) -> String {
    let mut html = String::with_capacity(64 * 1024);
    html.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'\">\n");
    html.push_str("<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n");
    let database = text(&data["database"]);
    let _ = writeln!(html, "<title>Webhooks of {database}</title>");
    let _ = writeln!(
        html,
        "<style>\n{}</style>\n</head>\n<body>",
        include_str!("style.css")
    );
    head(&mut html, data, &database);
    tiles(&mut html, data);
    html.push_str("<h2>The last six hours</h2>\n");
    chart::charts(&mut html, &data["history"]);
    table(
        &mut html,
        "Failing endpoints",
        &data["endpoints"],
        &[
            ("endpoint_id", "endpoint", Kind::Fixed),
            ("partner_id", "partner", Kind::Text),
            ("health", "health", Kind::Word),
            ("failures", "failures", Kind::Number),
            ("failing_for", "failing for", Kind::Fixed),
            ("last_status", "status", Kind::Number),
            ("last_error_category", "why", Kind::Fixed),
            ("disable_at", "disabled at", Kind::Fixed),
        ],
        "No endpoint fails.",
    );
    table(
        &mut html,
        "Recent dead letters",
        &data["dead_letters"],
        &[
            ("delivery_id", "delivery", Kind::Text),
            ("partner_id", "partner", Kind::Text),
            ("type", "event type", Kind::Text),
            ("attempt_count", "attempts", Kind::Number),
            ("last_status", "status", Kind::Number),
            ("last_error_category", "why", Kind::Fixed),
            ("reason", "reason", Kind::Text),
            ("emitted_at", "emitted", Kind::Fixed),
        ],
        "No delivery waits for a decision.",
    );
    table(
        &mut html,
        "Recent alerts",
        &data["alerts"],
        &[
            ("at", "at", Kind::Fixed),
            ("severity", "severity", Kind::Word),
            ("kind", "kind", Kind::Fixed),
            ("partner_id", "partner", Kind::Text),
            ("endpoint_id", "endpoint", Kind::Fixed),
            ("detail", "what", Kind::Text),
        ],
        "No alert is kept.",
    );
    let _ = writeln!(
        html,
        "<footer class=\"soft\">webhook_outbox {} · drawn at {} · times in UTC · the charts begin with the server</footer>\n</body>\n</html>",
        text(&data["version"]),
        text(&data["at"]),
    );
    html
}

fn head(html: &mut String, data: &Value, database: &str) {
    let state = text(&data["worker"]["state"]);
    let colour = match data["worker"]["state"].as_str() {
        Some("running") => "good",
        Some("standby" | "starting" | "not served") => "warn",
        _ => "bad",
    };
    let _ = writeln!(
        html,
        "<header><h1>Webhooks of <bdi>{database}</bdi></h1><span class=\"state {colour}\">leader: {state}</span><span class=\"soft\">{}</span></header>",
        text(&data["at"])
    );
    let advice = text(&data["advice"]);
    if !advice.is_empty() {
        let _ = writeln!(html, "<p>{advice}</p>");
    }
}

fn tiles(html: &mut String, data: &Value) {
    let numbers = &data["numbers"];
    html.push_str("<dl class=\"tiles\">\n");
    let mut tile = |name: &str, value: String, colour: &str| {
        let _ = writeln!(
            html,
            "<div class=\"tile\"><dt>{name}</dt><dd class=\"{colour}\">{value}</dd></div>"
        );
    };
    let some = |name: &str, colour: &'static str| match numbers[name].as_f64() {
        Some(value) if value > 0.0 => colour,
        _ => "",
    };
    let rate = data["success_rate"].as_f64();
    tile(
        "success, last hour",
        rate.map_or("–".to_owned(), chart::percent),
        match rate {
            Some(rate) if rate < 0.9 => "bad",
            Some(rate) if rate < 0.99 => "warn",
            _ => "",
        },
    );
    for (name, member) in [
        ("unread events", "unread"),
        ("queued pairs", "queued"),
        ("in flight", "in_flight"),
        ("due", "due"),
        ("pending", "pending"),
        ("retrying", "retrying"),
    ] {
        tile(name, count(&numbers[member]), "");
    }
    let age = numbers["unread_age"].as_f64().unwrap_or(0.0);
    let late = if age > 60.0 { "bad" } else { "" };
    tile("oldest unread", chart::duration(age), late);
    tile("dead letters", count(&numbers["dead"]), some("dead", "bad"));
    tile("held", count(&numbers["held"]), some("held", "warn"));
    tile("fenced", count(&numbers["fenced"]), some("fenced", "bad"));
    tile("pauses", count(&numbers["pauses"]), some("pauses", "warn"));
    html.push_str("</dl>\n");
}

fn table(html: &mut String, title: &str, rows: &Value, columns: &[Column], nothing: &str) {
    let _ = writeln!(html, "<h2>{title}</h2>");
    let Some(rows) = rows.as_array() else {
        html.push_str("<p class=\"none\">This role has no right to see them.</p>\n");
        return;
    };
    if rows.is_empty() {
        let _ = writeln!(html, "<p class=\"none\">{nothing}</p>");
        return;
    }
    html.push_str("<table>\n<thead><tr>");
    for (_, name, kind) in columns {
        let class = if *kind == Kind::Number {
            " class=\"number\""
        } else {
            ""
        };
        let _ = write!(html, "<th scope=\"col\"{class}>{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for (member, name, kind) in columns {
            let value = text(&row[*member]);
            let shown = if value.is_empty() { "–" } else { &value };
            let class = match kind {
                Kind::Text => "",
                Kind::Number => " class=\"number\"",
                Kind::Fixed => " class=\"fixed\"",
                Kind::Word => match row[*member].as_str() {
                    Some("down" | "critical") => " class=\"fixed bad\"",
                    Some("failing" | "warning") => " class=\"fixed warn\"",
                    _ => " class=\"fixed\"",
                },
            };
            let _ = write!(
                html,
                "<td{class} data-name=\"{name}\"><bdi>{shown}</bdi></td>"
            );
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
}

/// A count; one that stopped at its bound says so.
fn count(value: &Value) -> String {
    match value.as_f64() {
        Some(value) if value >= 10_000.0 => "≥ 10k".to_owned(),
        Some(value) => chart::number(value),
        None => "–".to_owned(),
    }
}

/// A value as text that is safe anywhere in the page: in an element and in a quoted attribute.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape(text),
        other => escape(&other.to_string()),
    }
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (n, character) in text.chars().enumerate() {
        if n == LONGEST {
            safe.push('…');
            break;
        }
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Characters that change the direction of what follows, and those that do nothing good at all.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push('\u{fffd}'),
            other if other.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}
