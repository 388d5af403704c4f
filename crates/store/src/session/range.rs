//! Range requests: a bounded walk over the ordered index in one call.

use base::UnixMillis;

use super::Session;
use crate::range::{NoOrder, Range, RangeEnd};
use crate::request::Item;

impl Session {
    /// Visits the items of a range in order, as many as `item_limit` and the bound of one call
    /// allow (about 1,000 items or 1 MiB); the caller goes on with [`Range::after`].
    ///
    /// Every key that is present throughout all calls is visited exactly once.
    ///
    /// # Errors
    /// The store's index keeps no order.
    pub fn range(
        &mut self,
        _now: UnixMillis,
        _range: &Range<'_>,
        _visit: impl FnMut(&Item<'_>),
    ) -> Result<RangeEnd, NoOrder> {
        Err(NoOrder)
    }
}
