//! A table of connections by small numbers, which are reused after they close.

/// Values at stable positions.
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    /// An empty slab.
    fn default() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value at a free position.
    pub fn insert(&mut self, value: T) -> usize {
        if let Some(slot) = self.free.pop() {
            self.entries[slot] = Some(value);
            slot
        } else {
            self.entries.push(Some(value));
            self.entries.len() - 1
        }
    }

    /// Takes a value out; its position becomes free.
    pub fn remove(&mut self, slot: usize) -> Option<T> {
        let value = self.entries.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// The value at `slot`, if there is one.
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.entries.get(slot)?.as_ref()
    }

    /// The value at `slot` for changes.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.entries.get_mut(slot)?.as_mut()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// One more than the last position that was ever in use.
    pub fn end(&self) -> usize {
        self.entries.len()
    }

    /// The positions in use.
    pub fn slots(&self) -> Vec<usize> {
        let used = |(slot, entry): (usize, &Option<T>)| entry.is_some().then_some(slot);
        self.entries.iter().enumerate().filter_map(used).collect()
    }
}

impl<T> std::ops::Index<usize> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: usize) -> &T {
        self.entries[slot].as_ref().expect("the position is in use")
    }
}

impl<T> std::ops::IndexMut<usize> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut T {
        self.entries[slot].as_mut().expect("the position is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_reused_only_after_its_removal() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_ne!(a, b);
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.insert('c'), a);
        assert_eq!((slab[a], slab[b], slab.len()), ('c', 'b', 2));
        assert_eq!(slab.slots(), [a, b]);
        assert!(slab.get_mut(9).is_none());
    }
}
