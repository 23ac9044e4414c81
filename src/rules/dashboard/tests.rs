//! The page as text: what is escaped, what is left out, what the axes say. How it looks is tested in a browser.

use serde_json::{Value, json};

use super::chart::{duration, number, percent};
use super::page;

fn data() -> Value {
    let steps: Vec<Value> = (0..72)
        .map(|n| {
            json!({"at": n * 300, "events": n, "delivered": n, "failed": if n == 70 { 3 } else { 0 }, "queued": n % 5,
                   "lag": [0.1, 0.2], "duration": [null, null]})
        })
        .collect();
    json!({
        "database": "shop", "version": "1", "at": "2026-11-30 12:00:00",
        "worker": {"state": "running"}, "advice": "Nothing to do.", "success_rate": 0.995,
        "numbers": {"unread": 10_000, "dead": 2, "unread_age": 90},
        "history": steps, "endpoints": [], "alerts": [],
        "dead_letters": [{"delivery_id": "dlv_1", "partner_id": "acme", "reason": "x"}],
    })
}

#[test]
fn every_text_is_escaped_wherever_it_stands() {
    let hostile = "</title><script>alert(1)</script>\"'&\u{202e}\u{7}";
    let mut data = data();
    for member in ["database", "version", "at", "advice"] {
        data[member] = hostile.into();
    }
    data["worker"]["state"] = hostile.into();
    for table in ["endpoints", "dead_letters", "alerts"] {
        let row: Value = [
            "endpoint_id",
            "partner_id",
            "health",
            "failures",
            "failing_for",
            "last_status",
            "last_error_category",
            "disable_at",
            "delivery_id",
            "type",
            "attempt_count",
            "reason",
            "emitted_at",
            "at",
            "severity",
            "kind",
            "detail",
        ]
        .into_iter()
        .map(|member| (member.to_owned(), Value::from(hostile)))
        .collect::<serde_json::Map<_, _>>()
        .into();
        data[table] = json!([row]);
    }
    let page = page(&data);
    assert!(!page.contains("<script"), "{page}");
    assert!(!page.contains('\u{202e}') && !page.contains('\u{7}'));
    assert_eq!(
        page.matches("</title>").count() - page.matches("<title>").count(),
        0
    );
    assert!(
        page.matches("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;")
            .count()
            >= 20
    );
}

#[test]
fn a_long_text_is_cut() {
    let mut data = data();
    data["alerts"] = json!([{"detail": "x".repeat(10_000)}]);
    let page = page(&data);
    assert!(page.contains(&format!("{}…", "x".repeat(300))) && !page.contains(&"x".repeat(301)));
}

#[test]
fn what_a_role_may_not_see_is_said_to_be_hidden_and_what_is_empty_to_be_empty() {
    let mut data = data();
    let told = page(&data);
    assert!(told.contains("No endpoint fails.") && told.contains("No alert is kept."));
    assert!(told.contains("≥ 10k") && told.contains("99.5 %") && told.contains("90 s"));
    data["dead_letters"] = Value::Null;
    assert!(page(&data).contains("This role has no right to see them."));
    let bare = page(&json!({}));
    assert!(
        bare.contains("The leader has counted nothing yet."),
        "{bare}"
    );
}

#[test]
fn numbers_are_shown_in_the_unit_that_fits() {
    let shown = [0.0, 3.0, 2.5, 9_999.0, 12_345.0, 2_500_000.0, 3e9].map(number);
    assert_eq!(shown, ["0", "3", "2.5", "9999", "12.3k", "2.5M", "3G"]);
    let shown = [0.0, 0.0042, 0.25, 1.0, 90.0, 300.0, 7_200.0, 200_000.0].map(duration);
    assert_eq!(
        shown,
        [
            "0 s", "4.2 ms", "250 ms", "1 s", "90 s", "5 min", "2 h", "2.3 d"
        ]
    );
    let shown = [0.0, 0.5, 0.955, 0.999_99, 1.0].map(percent);
    assert_eq!(shown, ["0 %", "50 %", "95.5 %", "99.99 %", "100 %"]);
}
