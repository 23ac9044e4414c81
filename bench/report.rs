//! What was measured: printed as it comes, and written to `bench/out/results.json` at the end.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

/// What is measured should be at least, or at most, this.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The more the better.
    AtLeast(f64),
    /// The less the better.
    AtMost(f64),
}

/// All measurements of a run.
#[derive(Default)]
pub struct Report {
    part: String,
    rows: Vec<Value>,
}

impl Report {
    /// Begins a part.
    pub fn part(&mut self, name: &str, what: &str) {
        self.part = name.to_owned();
        println!("\n{name}: {what}");
    }

    /// A figure that stands for itself.
    pub fn figure(&mut self, measure: &str, value: f64, unit: &str) {
        self.add(measure, value, unit, None);
    }

    /// A figure that has a target.
    pub fn judged(&mut self, measure: &str, value: f64, unit: &str, target: Target) {
        self.add(measure, value, unit, Some(target));
    }

    fn add(&mut self, measure: &str, value: f64, unit: &str, target: Option<Target>) {
        let (limit, reached) = match target {
            None => (None, None),
            Some(Target::AtLeast(limit)) => (Some(format!(">= {limit}")), Some(value >= limit)),
            Some(Target::AtMost(limit)) => (Some(format!("<= {limit}")), Some(value <= limit)),
        };
        let verdict = match reached {
            None => "",
            Some(true) => "reached",
            Some(false) => "MISSED",
        };
        println!(
            "  {measure:<58} {:>12} {unit:<9} {:<10} {verdict}",
            written(value),
            limit.as_deref().unwrap_or_default()
        );
        self.rows.push(json!({
            "part": self.part, "measure": measure, "value": value, "unit": unit,
            "target": limit, "reached": reached,
        }));
    }

    /// Writes everything down.
    pub fn write(&self) -> std::io::Result<PathBuf> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("out");
        fs::create_dir_all(&folder)?;
        let path = folder.join("results.json");
        let text = serde_json::to_string_pretty(&json!({
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "results": self.rows,
        }))?;
        fs::write(&path, text + "\n")?;
        Ok(path)
    }
}

/// With as many digits as mean something.
fn written(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
