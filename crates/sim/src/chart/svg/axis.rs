//! Axes: the positions of values, and which values are labelled.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use crate::chart::Scale;

/// About how many numbers stand on a linear axis.
const STEPS_WANTED: f64 = 6.0;
/// A logarithmic axis of fewer decades also says 2 and 5.
const DECADES_FEW: f64 = 2.3;
/// A linear axis starts at 0 unless all of it is in the upper part.
const ZERO_SHARE_MAX: f64 = 0.6;

/// One axis with its marks.
#[derive(Clone, Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    light_ticks: Vec<f64>,
}

impl Span {
    /// Holds every number that the scale can show; `margin` is what bars need at both ends.
    pub(super) fn around(scale: Scale, numbers: impl Iterator<Item = f64>, margin: f64) -> Span {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for number in numbers.filter(|number| is_shown(scale, *number)) {
            (low, high) = (low.min(number), high.max(number));
        }
        let is_empty = low > high;
        match scale {
            Scale::Names(names) => Span::named(names.len()),
            Scale::Linear if is_empty => Span::linear(0.0, 1.0),
            Scale::Log if is_empty => Span::log(1.0, 10.0),
            Scale::Linear => Span::linear(low - margin, high + margin),
            Scale::Log => Span::log(low, high),
        }
    }

    fn named(count: usize) -> Span {
        let ticks = (0..count).map(|index| index as f64).collect();
        let high = count as f64 - 0.4;
        Span { scale: Scale::Linear, low: -0.6, high, ticks, light_ticks: Vec::new() }
    }

    fn linear(low: f64, high: f64) -> Span {
        let is_low = low < ZERO_SHARE_MAX * high || low == high;
        let low = if low > 0.0 && is_low { 0.0 } else { low };
        let span = if high > low { high - low } else { low.abs().max(1.0) };
        let step = round_step(span / STEPS_WANTED);
        let first = (low / step + 1e-9).floor();
        let count = ((low + span) / step - first - 1e-9).ceil().max(1.0) as i64;
        let ticks: Vec<f64> = (0..=count).map(|index| (first + index as f64) * step).collect();
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        Span { scale: Scale::Linear, low, high, ticks, light_ticks: Vec::new() }
    }

    fn log(low: f64, high: f64) -> Span {
        let is_few = (high / low).log10() < DECADES_FEW;
        let factors: &[f64] = if is_few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = |factors: &[f64]| -> Vec<f64> {
            let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
            decades
                .flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)))
                .collect()
        };
        let marks = every(factors);
        // One mark of the fine kind below and above, so that no point lies on the frame.
        let fine = every(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let low = fine.iter().copied().filter(|mark| *mark < low * 0.97).fold(0.0, f64::max);
        let high =
            fine.iter().copied().filter(|mark| *mark > high * 1.03).fold(f64::INFINITY, f64::min);
        let inside = |mark: &f64| (low * 0.999..=high * 1.001).contains(mark);
        let ticks: Vec<f64> = marks.into_iter().filter(inside).collect();
        let light_ticks = fine.into_iter().filter(inside).collect();
        Span { scale: Scale::Log, low, high, ticks, light_ticks }
    }

    /// Where bars stand.
    pub(super) fn base(&self) -> f64 {
        match self.scale {
            Scale::Log => self.low,
            _ => 0.0_f64.clamp(self.low, self.high),
        }
    }

    /// Whether the scale can show the number.
    pub(super) fn shows(&self, number: f64) -> bool {
        is_shown(self.scale, number)
    }

    fn place(&self, number: f64) -> f64 {
        match self.scale {
            Scale::Log => (number / self.low).ln() / (self.high / self.low).ln(),
            _ => (number - self.low) / (self.high - self.low),
        }
    }
}

/// Finite, and above 0 on a logarithmic scale.
fn is_shown(scale: Scale, number: f64) -> bool {
    number.is_finite() && (scale != Scale::Log || number > 0.0)
}

/// 1, 2 or 5 times a power of ten, not below `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= step * 0.999);
    factor.unwrap_or(10.0) * decade
}

impl Ranged for Span {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, limit: (i32, i32)) -> i32 {
        let length = f64::from(limit.1 - limit.0);
        limit.0 + (self.place(*number) * length).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Any if !self.light_ticks.is_empty() => self.light_ticks.clone(),
            _ => self.ticks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Span {
    fn format_ext(&self, number: &f64) -> String {
        written(*number)
    }
}

/// As short as it can be read back: `0.25`, `1500`, `20k`, `3M`, `1e-5`.
pub(super) fn written(number: f64) -> String {
    let size = number.abs();
    if size < 1e-12 {
        return "0".to_owned();
    }
    let (scaled, unit) = match size {
        1e9.. => (number / 1e9, "G"),
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    if size < 1e-3 {
        return format!("{number:.0e}");
    }
    let digits = format!("{scaled:.4}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scale: Scale, numbers: &[f64], want_range: (f64, f64), want_ticks: &str) {
        let span = Span::around(scale, numbers.iter().copied(), 0.0);
        let ticks: Vec<String> = span.ticks.iter().map(|tick| written(*tick)).collect();
        assert_eq!(ticks.join(" "), want_ticks);
        let near = |found: f64, want: f64| (found - want).abs() <= 1e-9 * want.abs().max(1.0);
        assert!(near(span.low, want_range.0) && near(span.high, want_range.1), "{span:?}");
    }

    #[test]
    fn linear_axes_start_at_zero_and_end_on_a_round_number() {
        check(Scale::Linear, &[10.0, 91.4], (0.0, 100.0), "0 20 40 60 80 100");
        check(Scale::Linear, &[0.05, 1.0], (0.0, 1.0), "0 0.2 0.4 0.6 0.8 1");
        check(Scale::Linear, &[0.9, 0.97], (0.9, 0.98), "0.9 0.92 0.94 0.96 0.98");
        check(Scale::Linear, &[7000.0, 60_000.0], (0.0, 60_000.0), "0 10k 20k 30k 40k 50k 60k");
    }

    #[test]
    fn linear_axes_of_one_number_or_none_have_a_length() {
        check(Scale::Linear, &[0.0], (0.0, 1.0), "0 0.2 0.4 0.6 0.8 1");
        check(Scale::Linear, &[f64::NAN], (0.0, 1.0), "0 0.2 0.4 0.6 0.8 1");
        check(Scale::Linear, &[4.0], (0.0, 4.0), "0 1 2 3 4");
    }

    #[test]
    fn logarithmic_axes_hold_every_number_inside_the_frame() {
        check(Scale::Log, &[531.0, 7000.0], (500.0, 8000.0), "500 1000 2000 5000");
        check(Scale::Log, &[1.0, 1000.0], (0.9, 2000.0), "1 10 100 1000");
        check(Scale::Log, &[0.0, -1.0], (0.9, 20.0), "1 2 5 10 20");
    }

    #[test]
    fn numbers_are_written_short() {
        for (number, want) in [(0.0, "0"), (0.25, "0.25"), (1500.0, "1500"), (2e4, "20k")] {
            assert_eq!(written(number), want);
        }
        for (number, want) in [(3.2e6, "3.2M"), (1e-5, "1e-5"), (-4e9, "-4G"), (-0.5, "-0.5")] {
            assert_eq!(written(number), want);
        }
    }
}
