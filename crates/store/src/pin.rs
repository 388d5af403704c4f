//! Pins: keep an item's bytes in place after the batch that found it (K12).

use std::marker::PhantomData;
use std::ops::Deref;

use crate::request::Item;

/// Hands out pins during a sink's call.
#[derive(Clone, Copy)]
pub struct Pins<'a>(PhantomData<&'a ()>);

/// A value's bytes, kept in place until this is dropped.
pub struct PinnedValue(Box<[u8]>);

impl Pins<'_> {
    /// Keeps `item.value` in place.
    pub fn pin(self, item: &Item<'_>) -> PinnedValue {
        PinnedValue(item.value.into())
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
