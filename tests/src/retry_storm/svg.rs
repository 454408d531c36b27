//! Line charts as SVG: panels one above the other, with everything a reader needs in the picture.

use std::fmt::Write;

/// One panel.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// What is on the horizontal axis, its last value (it begins at 0), and one in so many is marked.
    pub(super) across: (&'static str, f64, f64),
    /// The highest value.
    pub(super) top: f64,
    pub(super) lines: Vec<Line>,
    /// What is shaded, from and to on the horizontal axis, and why.
    pub(super) shaded: Option<(f64, f64, &'static str)>,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

// Colours that also people tell apart who do not see red and green.
pub(super) const RED: &str = "#d55e00";
pub(super) const BLUE: &str = "#0072b2";
pub(super) const GREEN: &str = "#009e73";
pub(super) const PINK: &str = "#cc79a7";
pub(super) const GREY: &str = "#777777";

const WIDTH: f64 = 860.0;
const PANEL: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 62.0;
const BELOW: f64 = 46.0;
/// How many stretches the vertical axis is divided into.
const MARKS: u32 = 5;

/// The panels, one above the other.
pub(super) fn picture(charts: &[Chart]) -> String {
    let height = PANEL * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (number, chart) in charts.iter().enumerate() {
        let down = PANEL * number as f64;
        write(&mut svg, format_args!("<g transform=\"translate(0 {down})\">\n"));
        chart.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * value / self.across.1
    }

    fn y(&self, value: f64) -> f64 {
        PANEL - BELOW - (PANEL - ABOVE - BELOW) * value / self.top
    }

    fn draw(&self, svg: &mut String) {
        text(svg, (LEFT, 20.0), "start", "#222222\" font-weight=\"bold", &self.title);
        if let Some((from, to, why)) = self.shaded {
            let (x, y) = (self.x(from), self.y(self.top));
            let (width, height) = (self.x(to) - x, self.y(0.0) - y);
            write(
                svg,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                     fill=\"#f2e6d0\"/>\n"
                ),
            );
            text(svg, (x + width / 2.0, y + 14.0), "middle", "#8a6d3b", why);
        }
        self.axes(svg);
        let mut legend = LEFT;
        for line in &self.lines {
            let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let stroke =
                format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{dash}", line.colour);
            svg.push_str("<polyline points=\"");
            // A line ends where it leaves the panel.
            for (x, y) in line.points.iter().take_while(|(_, y)| *y <= self.top) {
                write(svg, format_args!("{:.1},{:.1} ", self.x(*x), self.y(*y)));
            }
            write(svg, format_args!("\" {stroke}/>\n"));
            let (from, to) = (legend, legend + 24.0);
            write(svg, format_args!("<path d=\"M{from:.1} 40H{to:.1}\" {stroke}/>\n"));
            text(svg, (to + 6.0, 44.0), "start", line.colour, &line.name);
            legend = to + 28.0 + 6.4 * line.name.len() as f64;
        }
    }

    fn axes(&self, svg: &mut String) {
        let (left, right) = (self.x(0.0), self.x(self.across.1));
        for mark in 0..=MARKS {
            let value = self.top * f64::from(mark) / f64::from(MARKS);
            let y = self.y(value);
            let grid = format_args!(
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#dddddd\" fill=\"none\"/>\n"
            );
            write(svg, grid);
            text(svg, (left - 6.0, y + 4.0), "end", "#444444", &thousands(value));
        }
        let (what, last, every) = self.across;
        for mark in 0..=(last / every) as u32 {
            let value = every * f64::from(mark);
            let below = (self.x(value), PANEL - BELOW + 16.0);
            text(svg, below, "middle", "#444444", &thousands(value));
        }
        let middle = (left + right) / 2.0;
        text(svg, (middle, PANEL - BELOW + 34.0), "middle", "#444444", what);
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
    write(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>\n"
        ),
    );
}

/// A whole number, in groups of three digits.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn write(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("a string takes every text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567")];
        for (value, expected) in cases {
            assert_eq!(thousands(value), expected);
        }
    }

    /// What a reader needs is in the picture, within its borders, and every element is closed.
    #[test]
    fn a_chart_shows_its_lines_within_its_borders() {
        let line = |name: &str, points| Line {
            name: name.to_owned(),
            colour: BLUE,
            dashed: name == "limit",
            points,
        };
        let chart = Chart {
            title: "load".to_owned(),
            across: ("seconds", 10.0, 5.0),
            top: 100.0,
            lines: vec![
                line("real", vec![(0.0, 0.0), (5.0, 50.0), (7.5, 100.0), (10.0, 300.0)]),
                line("limit", vec![(0.0, 100.0), (10.0, 100.0)]),
            ],
            shaded: Some((2.0, 4.0, "outage")),
        };
        let svg = picture(&[chart.clone(), chart]);
        for needed in ["load", "seconds", "real", "limit", "outage", "viewBox=\"0 0 860 600\""] {
            assert!(svg.contains(needed), "no {needed}: {svg}");
        }
        // Bottom left, the middle, the top; what is too high is not drawn.
        assert!(svg.contains("\"70.0,254.0 455.0,158.0 647.5,62.0 \""), "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 4, "two lines and their legends");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
    }
}
