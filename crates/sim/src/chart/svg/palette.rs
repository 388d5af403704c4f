//! Colours: one for each label, distinguishable also by colour-blind readers.

use plotters::style::RGBColor;

/// Okabe and Ito's colours without the yellow, which white paper swallows, and a few dark ones.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(136, 34, 85),
    RGBColor(127, 127, 127),
    RGBColor(140, 86, 75),
];

/// The colours of all labels of a picture, in the order in which they first appear.
#[derive(Debug, Default)]
pub(super) struct Palette<'a> {
    labels: Vec<&'a str>,
}

impl<'a> Palette<'a> {
    /// Gives the label a colour if it has none yet.
    pub(super) fn add(&mut self, label: &'a str) {
        if !self.labels.contains(&label) {
            self.labels.push(label);
        }
    }

    /// In the order of their colours.
    pub(super) fn labels(&self) -> &[&'a str] {
        &self.labels
    }

    /// The same label has the same colour in every panel; after ten they come round again.
    pub(super) fn colour(&self, label: &str) -> RGBColor {
        let index = self.labels.iter().position(|known| *known == label).unwrap_or(0);
        COLOURS[index % COLOURS.len()]
    }
}
