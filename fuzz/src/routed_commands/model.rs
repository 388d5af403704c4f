//! What one client's keys hold.

use std::collections::BTreeMap;

/// Keys of each client: few, so that writes of one meet in windows.
pub(crate) const KEYS: usize = 4;

/// A value, and whether it expires some day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub bytes: Vec<u8>,
    pub expires: bool,
    /// Grows with each write of any key.
    pub version: u64,
}

/// One client's keys.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    prefix: String,
    values: BTreeMap<usize, Value>,
    version: u64,
}

impl Model {
    pub fn new(prefix: String) -> Model {
        Model { prefix, values: BTreeMap::new(), version: 0 }
    }

    pub fn name(&self, key: usize) -> String {
        format!("{}:{key}", self.prefix)
    }

    pub fn get(&self, key: usize) -> Option<&Value> {
        self.values.get(&key)
    }

    /// Writes; the expiry is as given.
    pub fn set(&mut self, key: usize, bytes: Vec<u8>, expires: bool) {
        self.version += 1;
        self.values.insert(key, Value { bytes, expires, version: self.version });
    }

    /// Writes what was changed; the expiry stays.
    pub fn change(&mut self, key: usize, bytes: Vec<u8>) {
        let expires = self.get(key).is_some_and(|value| value.expires);
        self.set(key, bytes, expires);
    }

    /// Whether the key was there and its expiry is as given now.
    pub fn touch(&mut self, key: usize, expires: bool) -> bool {
        let Some(bytes) = self.get(key).map(|value| value.bytes.clone()) else { return false };
        self.set(key, bytes, expires);
        true
    }

    pub fn remove(&mut self, key: usize) -> Option<Value> {
        self.values.remove(&key)
    }
}
