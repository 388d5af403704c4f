//! Tests of the parts that every picture must contain.

use super::{draw, grid};
use crate::chart::{Axis, Chart, Scale, Series, Style};

fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.to_owned(), scale }
}

fn series(label: &str, style: Style, points: &[(f64, f64)]) -> Series {
    Series { label: label.to_owned(), style, points: points.to_vec() }
}

fn chart(x: Scale, y: Scale, all: &[Series]) -> Chart {
    Chart {
        title: "p99 against load".to_owned(),
        x: axis("load (MRPS)", x),
        y: axis("p99 (ns)", y),
        series: all.to_vec(),
    }
}

#[test]
fn a_picture_says_what_is_on_its_axes_and_in_its_legend() {
    let points = [(1.0, 700.0), (2.0, 800.0), (3.0, f64::NAN), (4.0, 0.0)];
    let all = [series("CREW", Style::Line, &points), series("CREW", Style::Marks, &points[..2])];
    let svg = draw("c4-fig9: latency", &[chart(Scale::Linear, Scale::Log, &all)]).unwrap();
    for part in ["c4-fig9: latency", "p99 against load", "load (MRPS)", "p99 (ns)", "CREW"] {
        assert!(svg.contains(part), "`{part}` is missing");
    }
    assert!(svg.contains("the paper&apos;s numbers") || svg.contains("the paper's numbers"));
    // Two dots of the line, two rings, one ring for each of the two legend's entries.
    assert_eq!(svg.matches("<circle").count(), 6);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn a_mark_has_the_colour_of_its_line_in_every_panel() {
    let one = chart(Scale::Linear, Scale::Linear, &[series("EREW", Style::Line, &[(1.0, 1.0)])]);
    let other = chart(
        Scale::Linear,
        Scale::Linear,
        &[series("CREW", Style::Line, &[(1.0, 1.0)]), series("EREW", Style::Marks, &[(1.0, 2.0)])],
    );
    let svg = draw("sample", &[one, other]).unwrap();
    // The first colour: dot, ring, legend's ring; the legend's own ring is grey.
    let dots = svg.lines().filter(|line| line.contains("<circle") && line.contains("#0072B2"));
    assert_eq!(dots.count(), 3, "{svg}");
}

#[test]
fn bars_of_two_series_stand_beside_each_other() {
    const NAMES: &[&str] = &["uniform", "skewed"];
    let all = [
        series("EREW", Style::Bars, &[(0.0, 1.0), (1.0, 0.4)]),
        series("CREW", Style::Bars, &[(0.0, 1.0), (1.0, 0.8)]),
        series("CREW", Style::Marks, &[(1.0, 0.9)]),
    ];
    let svg = draw("sample", &[chart(Scale::Names(NAMES), Scale::Linear, &all)]).unwrap();
    assert!(svg.contains("uniform") && svg.contains("skewed"));
    // The background, four bars, two of the legend.
    assert_eq!(svg.matches("<rect").count(), 7, "{svg}");
    let lefts: Vec<&str> = svg
        .lines()
        .filter(|line| line.contains("<rect") && line.contains("0.75"))
        .filter_map(|line| line.split(" x=\"").nth(1)?.split('"').next())
        .collect();
    let mut distinct = lefts[..4].to_vec();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{lefts:?}");
}

#[test]
fn pictures_without_points_are_drawn_all_the_same() {
    for scale in [Scale::Linear, Scale::Log, Scale::Names(&["one"])] {
        let empty = chart(scale, Scale::Log, &[series("none", Style::Line, &[])]);
        assert!(draw("sample", &[empty]).unwrap().ends_with("</svg>\n"));
    }
    assert!(draw("sample", &[]).unwrap().contains("sample"));
}

#[test]
fn panels_fill_a_grid() {
    for (count, want) in [(1, (1, 1)), (2, (2, 1)), (3, (3, 1)), (4, (2, 2)), (7, (3, 3))] {
        assert_eq!(grid(count), want, "{count}");
    }
}
