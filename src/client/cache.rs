//! A small table whose rows expire, bounded in rows and in bytes: what strangers make this house remember for a while.

use crate::time::Timestamp;
use std::collections::BTreeMap;

pub struct Cache<K, V> {
    rows: BTreeMap<K, Row<V>>,
    bytes: usize,
    rows_max: usize,
    bytes_max: usize,
}

struct Row<V> {
    value: V,
    until: Timestamp,
    bytes: usize,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub fn new(rows_max: usize, bytes_max: usize) -> Self {
        Cache { rows: BTreeMap::new(), bytes: 0, rows_max, bytes_max }
    }

    pub fn get(&self, key: &K, now: Timestamp) -> Option<V> {
        self.rows.get(key).filter(|row| row.until > now).map(|row| row.value.clone())
    }

    /// A row that alone is over the bound is not kept.
    pub fn put(&mut self, key: K, value: V, bytes: usize, now: Timestamp, until: Timestamp) {
        self.remove(&key);
        if bytes > self.bytes_max || self.rows_max == 0 {
            return;
        }
        if self.is_full(bytes) {
            self.sweep(now);
        }
        while self.is_full(bytes) {
            let Some(first) = self.rows.iter().min_by_key(|(_, row)| row.until).map(|(key, _)| key.clone()) else {
                break;
            };
            self.remove(&first);
        }
        self.bytes += bytes;
        self.rows.insert(key, Row { value, until, bytes });
    }

    pub fn remove(&mut self, key: &K) {
        if let Some(row) = self.rows.remove(key) {
            self.bytes -= row.bytes;
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let bytes = &mut self.bytes;
        self.rows.retain(|key, row| {
            let kept = keep(key);
            if !kept {
                *bytes -= row.bytes;
            }
            kept
        });
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_full(&self, more: usize) -> bool {
        self.rows.len() >= self.rows_max || self.bytes + more > self.bytes_max
    }

    fn sweep(&mut self, now: Timestamp) {
        let bytes = &mut self.bytes;
        self.rows.retain(|_, row| {
            let live = row.until > now;
            if !live {
                *bytes -= row.bytes;
            }
            live
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_expire_and_the_table_stays_within_its_bounds() {
        let at = Timestamp::from_millis;
        let mut cache: Cache<u32, u32> = Cache::new(3, 100);
        for n in 0..3 {
            cache.put(n, n, 10, at(0), at(100 + i64::from(n)));
        }
        assert_eq!(cache.get(&0, at(99)), Some(0));
        assert_eq!(cache.get(&0, at(100)), None);
        cache.put(3, 3, 10, at(0), at(200));
        assert_eq!((cache.len(), cache.get(&0, at(0))), (3, None), "the first to expire goes");
        cache.put(4, 4, 90, at(0), at(300));
        assert_eq!((cache.len(), cache.get(&4, at(0))), (2, Some(4)), "bytes count too");
        cache.put(5, 5, 101, at(0), at(300));
        assert_eq!(cache.get(&5, at(0)), None);
        cache.put(4, 5, 1, at(0), at(300));
        assert_eq!(cache.get(&4, at(0)), Some(5));
    }
}
