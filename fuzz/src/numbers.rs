//! Numbers: integers against the standard library, decimal sums against themselves.

use wire::resp::number::{add_float, is_float, parse_i64};

/// An input is two texts, split at the first space.
pub fn numbers(data: &[u8]) {
    let mut texts = data.splitn(2, |byte| *byte == b' ');
    let (left, right) = (texts.next().unwrap_or_default(), texts.next().unwrap_or(b"0"));
    check_integer(left);
    check_integer(right);
    check_sum(left, right);
}

/// Exactly the texts that printing an integer gives are integers.
fn check_integer(text: &[u8]) {
    let printed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let want = printed.filter(|number| number.to_string().as_bytes() == text);
    assert_eq!(parse_i64(text), want, "{text:?}");
}

fn check_sum(left: &[u8], right: &[u8]) {
    let mut sum = Vec::new();
    if add_float(left, right, &mut sum).is_err() {
        assert!(sum.is_empty());
        return;
    }
    assert!(is_float(left) && is_float(right));
    let mut swapped = Vec::new();
    add_float(right, left, &mut swapped).expect("a sum does not depend on its order");
    assert_eq!(sum, swapped);
    let mut again = Vec::new();
    add_float(&sum, b"0", &mut again).expect("a sum is a number");
    assert_eq!(sum, again, "what is written is read back");
    check_against_f64(left, right, &sum);
}

/// Close to what doubles give, where doubles are good at all.
fn check_against_f64(left: &[u8], right: &[u8], sum: &[u8]) {
    if [left, right].iter().any(|text| text.contains(&b'x') || text.contains(&b'X')) {
        return; // The standard library reads no hexadecimal numbers.
    }
    let value = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|t| t.parse::<f64>().ok());
    let (Some(left), Some(right), Some(sum)) = (value(left), value(right), value(sum)) else {
        panic!("the standard library reads every number that we read");
    };
    let scale = left.abs().max(right.abs()).max(1.0);
    if scale < 1e300 {
        assert!((left + right - sum).abs() <= scale * 1e-14, "{left} + {right} = {sum}");
    }
}
