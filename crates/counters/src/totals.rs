//! Rows of counters that are summed over the workers.
//!
//! ```text
//!  counters { /// Frames of replies.          the field of the totals
//!             frames_out = frames_out, }      the cell of each worker
//!     ─▶ struct, `sum_rows` (of all workers), `subtract` (a baseline)
//! ```
//!
//! A counter that is not a row is neither summed nor reset, so it cannot be one without the other.

/// Declares totals: their rows, and the fields that are computed otherwise.
macro_rules! totals {
    (
        $(#[$meta:meta])*
        pub struct $Totals:ident of $Cells:ident;
        counters { $($(#[$doc:meta])* $name:ident = $($cell:ident).+,)* }
        arrays { $($(#[$array_doc:meta])* $array:ident = $($cells:ident).+: $len:expr,)* }
        others { $($(#[$other_doc:meta])* $other:ident: $type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $Totals {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$array_doc])* pub $array: [u64; $len],)*
            $($(#[$other_doc])* pub $other: $type,)*
        }

        impl $Totals {
            /// The rows of all workers.
            pub(crate) fn sum_rows<'a>(cells: impl Iterator<Item = &'a $Cells>) -> $Totals {
                let mut totals = $Totals::default();
                cells.for_each(|cells| totals.add(cells));
                totals
            }

            /// Adds the rows of one worker.
            fn add(&mut self, cells: &$Cells) {
                $(self.$name += cells.$($cell).+.get();)*
                $(for (sum, cell) in self.$array.iter_mut().zip(&cells.$($cells).+) {
                    *sum += cell.get();
                })*
            }

            /// Subtracts the rows of `baseline`.
            pub(crate) fn subtract(&mut self, baseline: &$Totals) {
                $(self.$name = self.$name.saturating_sub(baseline.$name);)*
                $(for (now, then) in self.$array.iter_mut().zip(baseline.$array) {
                    *now = now.saturating_sub(then);
                })*
            }
        }
    };
}

pub(crate) use totals;
