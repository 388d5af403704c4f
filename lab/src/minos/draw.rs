//! Short helpers that describe the charts of Minos.

use crate::figure::{Axis, Scale, Series, Style};

/// Our numbers.
pub fn line(label: &str, points: Vec<(f64, f64)>) -> Series {
    Series { label: label.to_owned(), style: Style::Line, points }
}

/// The paper's numbers, in the colour of the line of the same name.
pub fn marks(label: &str, points: &[(f64, f64)]) -> Series {
    Series { label: label.to_owned(), style: Style::Marks, points: points.to_vec() }
}

/// Bars around each x.
pub fn bars(label: &str, points: Vec<(f64, f64)>) -> Series {
    Series { label: label.to_owned(), style: Style::Bars, points }
}

/// Equal steps.
pub fn linear(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear }
}

/// Equal factors.
pub fn log(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Log }
}

/// A row of a table, numbers with three decimals.
pub fn row(names: &[&str], numbers: &[f64]) -> Vec<String> {
    let names = names.iter().map(|name| (*name).to_owned());
    names.chain(numbers.iter().map(|number| format!("{number:.3}"))).collect()
}

/// A table's head.
pub fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
