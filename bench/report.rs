//! What was measured: printed as it comes, and written to `bench/out/results.json` at the end.

use std::{collections::BTreeMap, fs, path::PathBuf};

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
    /// The figures that are compared from one version to the next, by names that stay.
    keys: BTreeMap<&'static str, f64>,
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

    /// Gives a figure, which was printed already, the name by which it is compared from one version to the next.
    pub fn key(&mut self, name: &'static str, value: f64) {
        self.keys.insert(name, value);
    }

    /// The figure of that name, where it was measured in this run.
    pub fn keyed(&self, name: &str) -> Option<f64> {
        self.keys.get(name).copied()
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

    /// What did not reach its target.
    pub fn missed(&self) -> Vec<String> {
        self.rows
            .iter()
            .filter(|row| row["reached"] == false)
            .map(|row| {
                let text = |name: &str| row[name].as_str().unwrap_or_default();
                format!(
                    "{}: {} is {}, target {}",
                    text("part"),
                    text("measure"),
                    row["value"],
                    text("target")
                )
            })
            .collect()
    }

    /// Writes everything down.
    pub fn write(&self) -> std::io::Result<PathBuf> {
        let path = folder()?.join("results.json");
        let text = serde_json::to_string_pretty(&json!({
            "keys": self.keys,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "results": self.rows,
        }))?;
        fs::write(&path, text + "\n")?;
        Ok(path)
    }
}

/// Where results lie.
pub fn folder() -> std::io::Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("out");
    fs::create_dir_all(&folder)?;
    Ok(folder)
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
