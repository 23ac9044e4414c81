//! The charts: bars and lines in SVG that stretch with the page, and their axes as plain text, which does not.

use std::fmt::Write as _;

use serde_json::Value;

/// Height of a drawing, in its own units; a step of the history is ten wide.
const HIGH: f64 = 100.0;
const WIDE: f64 = 10.0;

/// A row of values: what it is called, and one for each step; none = nothing happened then.
struct Series {
    name: &'static str,
    values: Vec<Option<f64>>,
}

/// What is drawn into one figure.
struct Chart {
    title: &'static str,
    series: Vec<Series>,
    /// Bars on top of each other, or lines.
    bars: bool,
    show: fn(f64) -> String,
    /// The top of the axis, where it does not follow from the values.
    top: Option<f64>,
}

/// All charts of a history.
pub fn charts(html: &mut String, history: &Value) {
    let steps = history.as_array().map_or(&[][..], Vec::as_slice);
    if steps.is_empty() {
        html.push_str("<p class=\"none\">The leader has counted nothing yet.</p>\n");
        return;
    }
    let counts = |member: &str| -> Vec<Option<f64>> {
        steps
            .iter()
            .map(|step| step[member].as_f64().filter(|value| *value > 0.0))
            .collect()
    };
    let quantiles = |member: &str, which: usize| -> Vec<Option<f64>> {
        steps
            .iter()
            .map(|step| step[member][which].as_f64())
            .collect()
    };
    let times = |title, member: &str| Chart {
        title,
        series: vec![
            Series {
                name: "median",
                values: quantiles(member, 0),
            },
            Series {
                name: "95 %",
                values: quantiles(member, 1),
            },
        ],
        bars: false,
        show: duration,
        top: None,
    };
    let single = |title, name, values, bars| Chart {
        title,
        series: vec![Series { name, values }],
        bars,
        show: number,
        top: None,
    };
    let rates = steps.iter().map(|step| {
        let (good, bad) = (
            step["delivered"].as_f64().unwrap_or(0.0),
            step["failed"].as_f64().unwrap_or(0.0),
        );
        (good + bad > 0.0).then(|| good / (good + bad))
    });
    let all = [
        Chart {
            title: "Attempts in 5 minutes",
            series: vec![
                Series {
                    name: "delivered",
                    values: counts("delivered"),
                },
                Series {
                    name: "failed",
                    values: counts("failed"),
                },
            ],
            bars: true,
            show: number,
            top: None,
        },
        Chart {
            title: "Success rate",
            series: vec![Series {
                name: "of attempts",
                values: rates.collect(),
            }],
            bars: false,
            show: percent,
            top: Some(1.0),
        },
        times("From emit to delivery", "lag"),
        times("Time of an attempt", "duration"),
        single("Events read in 5 minutes", "events", counts("events"), true),
        single("Most pairs in memory", "pairs", counts("queued"), true),
    ];
    html.push_str("<div class=\"charts\">\n");
    for chart in &all {
        figure(html, chart, steps);
    }
    html.push_str("</div>\n");
}

fn figure(html: &mut String, chart: &Chart, steps: &[Value]) {
    let highest = (0..steps.len())
        .map(|n| {
            let values = chart
                .series
                .iter()
                .map(|series| series.values[n].unwrap_or(0.0));
            if chart.bars {
                values.sum::<f64>()
            } else {
                values.fold(0.0, f64::max)
            }
        })
        .fold(0.0, f64::max);
    let top = chart.top.unwrap_or_else(|| round_up(highest));
    let _ = write!(
        html,
        "<figure class=\"chart\"><figcaption><h3>{}</h3><span class=\"key\">",
        chart.title
    );
    for (series, colour) in chart.series.iter().zip(["one", "two"]) {
        let _ = write!(html, "<i class=\"{colour}\"></i>{}", series.name);
    }
    let wide = steps.iter().fold(0.0, |sum, _| sum + WIDE);
    let _ = write!(
        html,
        "</span></figcaption><div class=\"plot\"><div class=\"y\"><span>{}</span><span>{}</span><span>{}</span></div>\
         <svg viewBox=\"0 0 {wide} {HIGH}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}, highest value {}\">",
        (chart.show)(top),
        (chart.show)(top / 2.0),
        if chart.bars {
            "0".to_owned()
        } else {
            (chart.show)(0.0)
        },
        chart.title,
        (chart.show)(highest),
    );
    let _ = write!(
        html,
        "<path class=\"grid\" d=\"M0 0H{wide}M0 {}H{wide}M0 {HIGH}H{wide}\"/>",
        HIGH / 2.0
    );
    if chart.bars {
        bars(html, chart, top);
    } else {
        lines(html, chart, top);
    }
    touch(html, chart, steps);
    html.push_str("</svg><div class=\"x\">");
    let last = steps.len() - 1;
    for n in [0, last / 3, last * 2 / 3, last] {
        let _ = write!(html, "<span>{}</span>", clock(&steps[n]));
    }
    html.push_str("</div></div></figure>\n");
}

fn bars(html: &mut String, chart: &Chart, top: f64) {
    let mut base: Vec<f64> = chart.series[0].values.iter().map(|_| HIGH).collect();
    for (series, colour) in chart.series.iter().zip(["one", "two"]) {
        let mut x = 0.0;
        for (value, base) in series.values.iter().zip(&mut base) {
            if let Some(value) = value {
                let high = value / top * HIGH;
                *base -= high;
                let _ = write!(
                    html,
                    "<rect class=\"bar {colour}\" x=\"{}\" y=\"{:.2}\" width=\"{}\" height=\"{high:.2}\"/>",
                    x + 1.0,
                    *base,
                    WIDE - 2.0
                );
            }
            x += WIDE;
        }
    }
}

/// A line is broken where nothing happened; a value alone is a dash.
fn lines(html: &mut String, chart: &Chart, top: f64) {
    for (series, colour) in chart.series.iter().zip(["one", "two"]).rev() {
        let mut path = String::new();
        let mut x = WIDE / 2.0;
        let mut down = false;
        for (n, value) in series.values.iter().enumerate() {
            if let Some(value) = value {
                let y = HIGH - value / top * HIGH;
                let alone = !down && series.values.get(n + 1).is_none_or(Option::is_none);
                let _ = if down {
                    write!(path, "L{x} {y:.2}")
                } else if alone {
                    write!(path, "M{} {y:.2}h{}", x - WIDE / 2.0, WIDE)
                } else {
                    write!(path, "M{x} {y:.2}")
                };
            }
            down = value.is_some();
            x += WIDE;
        }
        let _ = write!(html, "<path class=\"trace {colour}\" d=\"{path}\"/>");
    }
}

/// What a pointer that rests on a step is told.
fn touch(html: &mut String, chart: &Chart, steps: &[Value]) {
    let mut x = 0.0;
    for (n, step) in steps.iter().enumerate() {
        let said: Vec<String> = chart
            .series
            .iter()
            .filter_map(|series| {
                series.values[n].map(|value| format!("{}: {}", series.name, (chart.show)(value)))
            })
            .collect();
        if !said.is_empty() {
            let _ = write!(
                html,
                "<rect class=\"touch\" x=\"{x}\" y=\"0\" width=\"{WIDE}\" height=\"{HIGH}\"><title>{} {}</title></rect>",
                clock(step),
                said.join(", ")
            );
        }
        x += WIDE;
    }
}

/// The time of day at which a step begins.
fn clock(step: &Value) -> String {
    let minutes = step["at"].as_i64().unwrap_or(0).div_euclid(60);
    let minutes = minutes.rem_euclid(24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10.0_f64.powf(value.log10().floor());
    let wanted = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= value * 0.999_999);
    wanted.unwrap_or(10.0) * power
}

/// A number without needless digits.
pub fn number(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let digits = format!("{value:.1}");
        format!("{}{unit}", digits.strip_suffix(".0").unwrap_or(&digits))
    };
    match value {
        v if v >= 1e9 => short(v / 1e9, "G"),
        v if v >= 1e6 => short(v / 1e6, "M"),
        v if v >= 1e4 => short(v / 1e3, "k"),
        v => short(v, ""),
    }
}

/// A share of one.
pub fn percent(value: f64) -> String {
    let percent = value * 100.0;
    if percent >= 99.95 || percent.fract() == 0.0 {
        // What is not all of it is never shown as that.
        return if value < 1.0 && percent > 99.0 {
            format!("{:.2} %", percent.min(99.99))
        } else {
            format!("{percent:.0} %")
        };
    }
    format!("{percent:.1} %")
}

/// Seconds, in the unit that fits.
pub fn duration(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let digits = if value < 10.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.0}")
        };
        format!("{} {unit}", digits.strip_suffix(".0").unwrap_or(&digits))
    };
    match value {
        v if v <= 0.0 => "0 s".to_owned(),
        v if v < 1.0 => short(v * 1e3, "ms"),
        v if v < 120.0 => short(v, "s"),
        v if v < 7_200.0 => short(v / 60.0, "min"),
        v if v < 172_800.0 => short(v / 3_600.0, "h"),
        v => short(v / 86_400.0, "d"),
    }
}
