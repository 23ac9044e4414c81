//! Plots: lines over a logarithmic axis, as SVG beside the results.

use std::error::Error;

use plotters::prelude::*;

use crate::report::folder;

/// What a plot says.
pub struct Axes<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below the horizontal axis, which is logarithmic.
    pub x: &'a str,
    /// Beside the vertical axis.
    pub y: &'a str,
    /// The vertical axis begins at zero.
    pub from_zero: bool,
}

/// A line: its name and its points.
pub type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws lines into a file of that name. One that cannot be drawn is told, and keeps nothing from being measured.
pub fn lines(name: &str, axes: &Axes<'_>, lines: &[Line<'_>]) {
    if let Err(error) = draw(name, axes, lines) {
        eprintln!("{name} cannot be drawn: {error}");
    }
}

fn draw(name: &str, axes: &Axes<'_>, lines: &[Line<'_>]) -> Result<(), Box<dyn Error>> {
    let path = folder()?.join(name);
    let all = || lines.iter().flat_map(|(_, points)| points);
    // A logarithm has no zero.
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN, f64::max);
    let x = least(&mut all().map(|point| point.0)).max(0.001)
        ..most(&mut all().map(|point| point.0)) * 1.05;
    let low = if axes.from_zero {
        0.0
    } else {
        least(&mut all().map(|point| point.1))
    };
    let y = low..most(&mut all().map(|point| point.1)) * 1.05;
    let area = SVGBackend::new(&path, (720, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(axes.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x.log_scale(), y)?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .light_line_style(WHITE)
        .draw()?;
    for (n, (name, points)) in lines.iter().enumerate() {
        let color = [RGBColor(31, 119, 180), RGBColor(214, 120, 20)][n % 2];
        let points = points.iter().map(|(x, y)| (x.max(0.001), *y));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    area.present()?;
    Ok(())
}
