//! The glob of KEYS, SCAN MATCH, CONFIG GET and ACL key patterns: `* ? [a-z] [^x] \`, on bytes.
//!
//! ```text
//!  user:*[0-9]?*long literal*.tmp
//!  └head┘ └short┘ └ literal ┘ └tail┘     head and tail stand at the text's ends; each part
//!                                         between two stars is found as far left as it can be
//! ```
//!
//! A star may always match as little as possible: if the parts after it match at all, they match
//! there too. So parts are found one after the other, and no byte of the text is tried again for an
//! earlier part.
//!
//! # Limits
//! A match takes at most [`STEPS_PER_BYTE`] steps per byte of the text, and one for each byte of
//! the pattern. Short parts are tried at each position. Long literals are found by two-way search.
//! Long parts with `?` or `[` run as bit vectors, one bit for each of their bytes, at most
//! [`WORDS_MAX`] words in all. A pattern beyond that is refused.

use std::fmt;

use memchr::memmem::Finder;

/// The maximum number of steps of a match for each byte of the text.
pub const STEPS_PER_BYTE: u64 = 16;

/// A longer part is not tried at each position.
const SHORT_MAX: usize = STEPS_PER_BYTE as usize;
/// The maximum number of words of 64 positions for all long parts with `?` or `[`.
const WORDS_MAX: usize = STEPS_PER_BYTE as usize;
const WORD_BITS: usize = u64::BITS as usize;

/// A longer pattern is refused: patterns that match keys of 65,535 bytes are shorter.
pub const PATTERN_MAX_BYTES: usize = 256 << 10;

/// Why a pattern is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It has more than `PATTERN_MAX_BYTES`.
    TooLong,
    /// Its long parts with `?` or `[` between stars need more than `WORDS_MAX` words.
    TooComplex,
}

impl PatternError {
    /// One line that names the limit.
    pub fn text(self) -> &'static str {
        match self {
            PatternError::TooLong => "the pattern is longer than 262144 bytes",
            PatternError::TooComplex => {
                "the pattern is too complex: its long parts with ? or [] between stars have more \
                 than 16 words of 64 places"
            }
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for PatternError {}

/// A parsed pattern, for many texts.
#[derive(Clone, Debug)]
pub struct Glob {
    /// The beginning of the text.
    head: Box<[Element]>,
    /// The parts after the head, in this order.
    parts: Box<[Part]>,
    /// The end of the text; `None`: there is no star, and the pattern is only the head.
    tail: Option<Box<[Element]>>,
    classes: Box<[Class]>,
    /// Shorter texts never match.
    len_min: usize,
}

/// The part of a pattern that one byte of a text is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Byte(u8),
    Any,
    /// One of the pattern's classes.
    Class(u32),
}

/// A bit for each byte.
#[derive(Clone, Copy, Debug, Default)]
struct Class([u64; 4]);

/// The bytes between two stars.
#[derive(Clone, Debug)]
enum Part {
    Short(Box<[Element]>),
    Literal(Box<Finder<'static>>),
    Long(Box<Places>),
}

/// A long part with `?` or `[`: for each byte value, the positions at which the part accepts it.
#[derive(Clone, Debug)]
struct Places {
    len: usize,
    word_count: usize,
    /// `word_count` words for byte 0, then for byte 1, and so on.
    takes: Vec<u64>,
}

impl Class {
    fn put(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn inverted(self) -> Class {
        Class(self.0.map(|word| !word))
    }
}

impl Glob {
    /// Parses a pattern.
    pub fn new(pattern: &[u8]) -> Result<Glob, PatternError> {
        Glob::with_fold(pattern, |byte| byte)
    }

    fn with_fold(pattern: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> Result<Glob, PatternError> {
        if pattern.len() > PATTERN_MAX_BYTES {
            return Err(PatternError::TooLong);
        }
        let mut classes = Vec::new();
        let mut runs: Vec<Vec<Element>> = vec![Vec::new()];
        let mut rest = pattern;
        while let Some((first, after)) = rest.split_first() {
            if *first == b'*' {
                // Several stars in a row equal one.
                if runs.len() < 2 || runs.last().is_some_and(|run| !run.is_empty()) {
                    runs.push(Vec::new());
                }
                rest = after;
                continue;
            }
            let (element, behind) = read_element(rest, fold, &mut classes);
            if let Some(run) = runs.last_mut() {
                run.push(element);
            }
            rest = behind;
        }
        let len_min = runs.iter().map(Vec::len).sum();
        let mut runs = runs.into_iter();
        let head = runs.next().unwrap_or_default().into_boxed_slice();
        let mut middle: Vec<Vec<Element>> = runs.collect();
        let tail = middle.pop().map(Vec::into_boxed_slice);
        let mut words_left = WORDS_MAX;
        let parts = middle.into_iter().map(|run| Part::new(run, &classes, &mut words_left));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Glob { head, parts, tail, classes: classes.into_boxed_slice(), len_min })
    }

    /// Whether all of `text` matches. The steps it took are added to `steps`.
    pub fn matches(&self, text: &[u8], steps: &mut u64) -> bool {
        *steps += 1;
        if text.len() < self.len_min || (self.tail.is_none() && text.len() != self.head.len()) {
            return false;
        }
        let (start, mut rest) = text.split_at(self.head.len());
        if !self.fits(&self.head, start, steps) {
            return false;
        }
        let Some(tail) = &self.tail else { return true };
        // Bytes of the tail belong to no other part; the tail is checked first, because it may rule
        // out a match.
        let (middle, end) = rest.split_at(rest.len() - tail.len());
        if !self.fits(tail, end, steps) {
            return false;
        }
        rest = middle;
        for part in &self.parts {
            let Some(end) = self.find(part, rest, steps) else { return false };
            rest = &rest[end..];
        }
        true
    }

    /// The maximum of [`Glob::held_bytes`] for this pattern, without parsing it.
    pub fn held_bytes_max(pattern: &[u8]) -> usize {
        let count_of = |byte: u8| memchr::memchr_iter(byte, pattern).count();
        let (stars, classes) = (count_of(b'*'), count_of(b'['));
        let long_count = pattern.len() / SHORT_MAX;
        let word_count = match classes + count_of(b'?') {
            0 => 0,
            _ => long_count.min(WORDS_MAX),
        };
        pattern.len() * size_of::<Element>()
            + classes * size_of::<Class>()
            + stars * size_of::<Part>()
            + stars.min(long_count) * size_of::<Finder<'_>>()
            + word_count * (size_of::<u64>() << 8)
    }

    /// Its memory, without itself.
    pub fn held_bytes(&self) -> usize {
        let elements = |run: &[Element]| size_of_val(run);
        let parts = self.parts.iter().map(|part| match part {
            Part::Short(run) => elements(run),
            Part::Literal(finder) => size_of::<Finder<'_>>() + finder.needle().len(),
            Part::Long(places) => size_of_val(&places.takes[..]),
        });
        let ends = elements(&self.head) + self.tail.as_deref().map_or(0, elements);
        let own = size_of_val(&self.parts[..]) + size_of_val(&self.classes[..]);
        ends + own + parts.sum::<usize>()
    }

    /// Whether a run of elements matches the same number of bytes.
    fn fits(&self, run: &[Element], bytes: &[u8], steps: &mut u64) -> bool {
        let takes = |(element, byte): (&Element, &u8)| match element {
            Element::Byte(wanted) => wanted == byte,
            Element::Any => true,
            Element::Class(index) => self.classes[*index as usize].has(*byte),
        };
        match run.iter().zip(bytes).position(|pair| !takes(pair)) {
            Some(taken) => {
                *steps += taken as u64 + 1;
                false
            }
            None => {
                *steps += run.len() as u64;
                true
            }
        }
    }

    /// The end of the first occurrence of a part.
    fn find(&self, part: &Part, text: &[u8], steps: &mut u64) -> Option<usize> {
        match part {
            Part::Short(run) => {
                let mut windows = text.windows(run.len());
                let start = windows.position(|window| self.fits(run, window, steps))?;
                Some(start + run.len())
            }
            Part::Literal(finder) => {
                let end = finder.find(text).map(|start| start + finder.needle().len());
                *steps += (end.unwrap_or(text.len())) as u64;
                end
            }
            Part::Long(places) => places.find(text, steps),
        }
    }
}

impl Part {
    fn new(
        run: Vec<Element>,
        classes: &[Class],
        words_left: &mut usize,
    ) -> Result<Part, PatternError> {
        // A part that accepts anything is found at once.
        if run.len() <= SHORT_MAX || run.iter().all(|element| *element == Element::Any) {
            return Ok(Part::Short(run.into_boxed_slice()));
        }
        let byte = |element: &Element| match element {
            Element::Byte(byte) => Some(*byte),
            Element::Any | Element::Class(_) => None,
        };
        if let Some(needle) = run.iter().map(byte).collect::<Option<Vec<u8>>>() {
            return Ok(Part::Literal(Box::new(Finder::new(&needle).into_owned())));
        }
        let word_count = run.len().div_ceil(WORD_BITS);
        *words_left = words_left.checked_sub(word_count).ok_or(PatternError::TooComplex)?;
        Ok(Part::Long(Box::new(Places::new(&run, classes, word_count))))
    }
}

impl Places {
    fn new(run: &[Element], classes: &[Class], word_count: usize) -> Places {
        let mut takes = vec![0; word_count << 8];
        for (place, element) in run.iter().enumerate() {
            let (word, bit) = (place / WORD_BITS, 1 << (place % WORD_BITS));
            let mut take = |byte: u8| takes[usize::from(byte) * word_count + word] |= bit;
            match element {
                Element::Byte(byte) => take(*byte),
                Element::Any => (0..=u8::MAX).for_each(take),
                Element::Class(index) => {
                    let class = &classes[*index as usize];
                    (0..=u8::MAX).filter(|byte| class.has(*byte)).for_each(take);
                }
            }
        }
        Places { len: run.len(), word_count, takes }
    }

    /// Shift-and: one bit for each prefix of the part that the text so far ends with.
    fn find(&self, text: &[u8], steps: &mut u64) -> Option<usize> {
        let (last_word, last_bit) = ((self.len - 1) / WORD_BITS, (self.len - 1) % WORD_BITS);
        let mut reached = [0_u64; WORDS_MAX];
        for (at, byte) in text.iter().enumerate() {
            let row = usize::from(*byte) * self.word_count;
            // The empty prefix always matches.
            let mut carry = 1;
            for (word, takes) in reached.iter_mut().zip(&self.takes[row..row + self.word_count]) {
                let shifted = *word << 1 | carry;
                carry = *word >> (WORD_BITS - 1);
                *word = shifted & takes;
            }
            if reached[last_word] >> last_bit & 1 == 1 {
                *steps += ((at + 1) * self.word_count) as u64;
                return Some(at + 1);
            }
        }
        *steps += (text.len() * self.word_count) as u64;
        None
    }
}

/// The first element of a pattern, which is not a star, and the rest.
fn read_element<'p>(
    pattern: &'p [u8],
    fold: impl Fn(u8) -> u8 + Copy,
    classes: &mut Vec<Class>,
) -> (Element, &'p [u8]) {
    let mut push = |class: Class| {
        classes.push(class);
        Element::Class((classes.len() - 1) as u32)
    };
    match pattern {
        [b'?', after @ ..] => (Element::Any, after),
        [b'[', b'^', class @ ..] => {
            let (class, after) = read_class(class, fold);
            (push(class.inverted()), after)
        }
        [b'[', class @ ..] => {
            let (class, after) = read_class(class, fold);
            (push(class), after)
        }
        [b'\\', literal, after @ ..] | [literal, after @ ..] => {
            (Element::Byte(fold(*literal)), after)
        }
        [] => (Element::Any, pattern),
    }
}

/// Parses a class up to its `]`, or to the pattern's end if there is none.
fn read_class(mut class: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> (Class, &[u8]) {
    let mut members = Class::default();
    loop {
        class = match class {
            [] => return (members, class),
            [b'\\', literal, after @ ..] => {
                members.put(fold(*literal));
                after
            }
            [b']', after @ ..] => return (members, after),
            [from, b'-', to, after @ ..] => {
                let (low, high) = (fold(*from.min(to)), fold(*from.max(to)));
                (low..=high).for_each(|byte| members.put(byte));
                after
            }
            [literal, after @ ..] => {
                members.put(fold(*literal));
                after
            }
        };
    }
}

/// A glob for names of settings or commands, without regard to case.
#[derive(Clone, Debug)]
pub struct NameGlob(Glob);

impl NameGlob {
    /// Parses a pattern.
    pub fn new(pattern: &[u8]) -> Result<NameGlob, PatternError> {
        Glob::with_fold(pattern, |byte| byte.to_ascii_lowercase()).map(NameGlob)
    }

    /// Whether all of `name` matches; it is in lower case.
    pub fn matches(&self, name: &str) -> bool {
        debug_assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name}");
        self.0.matches(name.as_bytes(), &mut 0)
    }
}

/// The literal bytes that every match of `pattern` starts with.
pub fn glob_prefix(pattern: &[u8]) -> &[u8] {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let len = pattern.iter().position(is_special).unwrap_or(pattern.len());
    &pattern[..len]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Glob, NameGlob, PATTERN_MAX_BYTES, PatternError, STEPS_PER_BYTE, glob_prefix};

    /// The answer, and the steps that it took.
    fn matched(pattern: &[u8], text: &[u8]) -> (bool, u64) {
        let mut steps = 0;
        (Glob::new(pattern).unwrap().matches(text, &mut steps), steps)
    }

    #[track_caller]
    fn check(pattern: &str, text: &str, want: bool) {
        assert_eq!(matched(pattern.as_bytes(), text.as_bytes()).0, want, "{pattern} {text}");
    }

    #[test]
    fn literals_match_themselves_only() {
        check("", "", true);
        check("", "a", false);
        check("abc", "abc", true);
        check("abc", "abd", false);
        check("abc", "ab", false);
        check("ab", "abc", false);
    }

    #[test]
    fn a_star_takes_any_number_of_bytes() {
        check("*", "", true);
        check("*", "anything", true);
        check("h*llo", "hllo", true);
        check("h*llo", "heeeello", true);
        check("h*llo", "hell", false);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b*", "xxbxxaxx", false);
        check("a**", "a", true);
        check("*ab", "aaab", true);
    }

    #[test]
    fn a_question_mark_takes_one_byte() {
        check("h?llo", "hello", true);
        check("h?llo", "hllo", false);
        check("?", "", false);
        check("*?", "a", true);
    }

    #[test]
    fn classes_hold_bytes_ranges_and_escapes() {
        check("h[ae]llo", "hallo", true);
        check("h[ae]llo", "hillo", false);
        check("h[^e]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("[a-c]", "b", true);
        check("[c-a]", "b", true);
        check("[a-c]", "d", false);
        check("[\\]]", "]", true);
        check("[a-]", "_", true); // A range up to the bracket, as in Redis.
        check("[a-", "-", true);
        check("[^]", "x", true);
        check("[]", "x", false);
        check("[abc", "b", true);
        check("[", "[", false);
    }

    #[test]
    fn a_backslash_takes_the_meaning_away() {
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("a\\", "a\\", true);
        check("\\[a]", "[a]", true);
    }

    #[test]
    fn case_counts_only_where_it_is_asked_for() {
        check("ABC", "abc", false);
        assert!(NameGlob::new(b"MAX*").unwrap().matches("maxmemory"));
        assert!(NameGlob::new(b"[A-C]X").unwrap().matches("bx"));
    }

    #[test]
    fn a_prefix_ends_where_bytes_begin_to_mean_something() {
        for (pattern, want) in [
            ("user:*", "user:"),
            ("user:1", "user:1"),
            ("us?r", "us"),
            ("us[e]r", "us"),
            ("us\\er", "us"),
            ("us]er-^*", "us]er-^"),
            ("*", ""),
            ("", ""),
        ] {
            assert_eq!(glob_prefix(pattern.as_bytes()), want.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_few_steps_for_each_byte() {
        let text = "a".repeat(65_535);
        for pattern in [
            "a*".repeat(500) + "b",
            format!("*{}b*", "a".repeat(15)),
            format!("*{}b*", "a".repeat(30_000)),
            format!("*b{}*", "a".repeat(30_000)),
            format!("*?{}b*", "a".repeat(1_000)),
            format!("*[a-z]{}b*", "?".repeat(1_000)),
            format!("{}*", "?".repeat(65_535)),
            format!("*{}", "[a]".repeat(65_535)),
            format!("*{}", "?*".repeat(65_536)),
        ] {
            let (_, steps) = matched(pattern.as_bytes(), text.as_bytes());
            let bound = STEPS_PER_BYTE * text.len() as u64 + pattern.len() as u64 + 1;
            assert!(steps <= bound, "{steps} steps for {}", &pattern[..20]);
        }
        let far = format!("*{}b*", "a".repeat(30_000));
        assert!(!matched(far.as_bytes(), text.as_bytes()).0);
    }

    #[test]
    fn long_parts_are_found_where_short_ones_are() {
        for len in [16, 17, 63, 64, 65, 128, 200] {
            for wild in ["?", "[ab]"] {
                let part = format!("{wild}{}b", "a".repeat(len));
                let found = format!("aaa{}{}b.tail", "a".repeat(len), "a");
                check(&format!("*{part}*tail"), &found, true);
                check(&format!("*{part}*tail"), &found.replace('b', "c"), false);
                check(&format!("*{part}*?tail*"), &found, true);
            }
        }
    }

    #[test]
    fn patterns_beyond_the_limits_are_refused() {
        let refused = |pattern: &str| Glob::new(pattern.as_bytes()).err();
        assert_eq!(refused(&format!("*?{}*", "a".repeat(1023))), None);
        let wide = format!("*?{}*", "a".repeat(1024));
        assert_eq!(refused(&wide), Some(PatternError::TooComplex));
        assert_eq!(refused(&"*?aaaaaaaaaaaaaaaa*".repeat(17)), Some(PatternError::TooComplex));
        assert_eq!(refused(&"a".repeat(PATTERN_MAX_BYTES)), None);
        assert_eq!(refused(&"a".repeat(PATTERN_MAX_BYTES + 1)), Some(PatternError::TooLong));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn every_answer_is_that_of_trying_every_place(
            pattern in "[ab*?\\[\\]^\\\\c-]{0,14}",
            text in "[abc*\\\\^\\]-]{0,12}",
        ) {
            let wanted = tried(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matched(pattern.as_bytes(), text.as_bytes()).0, wanted);
        }

        #[test]
        fn every_answer_on_long_parts_is_that_of_trying_every_place(
            parts in prop::collection::vec(
                "[ab?]{1,4}|[ab]{15,70}|[ab?]{15,30}|(\\[ab\\]){15,20}",
                0..4,
            ),
            text in "[ab]{0,300}",
            ends in any::<(bool, bool)>(),
        ) {
            let star = |is_there| if is_there { "*" } else { "" };
            let pattern = format!("{}{}{}", star(ends.0), parts.join("*"), star(ends.1));
            let wanted = tried(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matched(pattern.as_bytes(), text.as_bytes()).0, wanted);
        }

        #[test]
        fn a_part_that_is_there_is_found(
            before in "[ab]{0,80}", part in "[ab]{1,150}", behind in "[ab]{0,80}",
            wild in any::<prop::sample::Index>(),
        ) {
            let mut wanted = part.clone().into_bytes();
            wanted[wild.index(part.len())] = b'?';
            let text = [before, part, behind].concat();
            let pattern = [b"*", &wanted[..], b"*"].concat();
            prop_assert!(matched(&pattern, text.as_bytes()).0);
        }
    }

    /// Redis's own algorithm: after a star, each position is tried.
    fn tried(mut pattern: &[u8], mut text: &[u8]) -> bool {
        // The pattern after the last star, and the text that it has been tried against.
        let mut star: Option<(&[u8], &[u8])> = None;
        loop {
            if let [b'*', after @ ..] = pattern {
                star = Some((after, text));
                pattern = after;
                continue;
            }
            let Some((byte, text_after)) = text.split_first() else {
                return pattern.is_empty();
            };
            if let Some(pattern_after) = tried_one(pattern, *byte) {
                (pattern, text) = (pattern_after, text_after);
                continue;
            }
            let Some((after_star, [_, rest @ ..])) = star else { return false };
            star = Some((after_star, rest));
            (pattern, text) = (after_star, rest);
        }
    }

    fn tried_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
        match pattern {
            [] => None,
            [b'?', after @ ..] => Some(after),
            [b'[', b'^', class @ ..] => {
                let (is_member, after) = tried_class(class, byte);
                (!is_member).then_some(after)
            }
            [b'[', class @ ..] => {
                let (is_member, after) = tried_class(class, byte);
                is_member.then_some(after)
            }
            [b'\\', literal, after @ ..] | [literal, after @ ..] => {
                (*literal == byte).then_some(after)
            }
        }
    }

    fn tried_class(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
        let mut is_member = false;
        loop {
            class = match class {
                [] => return (is_member, class),
                [b'\\', literal, after @ ..] => {
                    is_member |= *literal == byte;
                    after
                }
                [b']', after @ ..] => return (is_member, after),
                [from, b'-', to, after @ ..] => {
                    is_member |= (*from.min(to)..=*from.max(to)).contains(&byte);
                    after
                }
                [literal, after @ ..] => {
                    is_member |= *literal == byte;
                    after
                }
            };
        }
    }
}
