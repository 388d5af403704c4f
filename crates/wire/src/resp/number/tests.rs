//! Numbers that Redis accepts and refuses.

use super::{ErrorReply, add_float, double_text, float_digits, is_float, parse_i64};

#[test]
fn integers_are_read_strictly() {
    let good = [
        ("0", 0),
        ("1", 1),
        ("-1", -1),
        ("42", 42),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
    ];
    for (text, want) in good {
        assert_eq!(parse_i64(text.as_bytes()), Some(want), "{text}");
    }
    let bad = [
        "",
        "-",
        "+1",
        "01",
        "-0",
        "-01",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x1",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
        "a",
        "--1",
    ];
    for text in bad {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
    }
}

#[track_caller]
fn check_sum(old: &str, increment: &str, want: &str) {
    let mut out = Vec::new();
    let result = add_float(old.as_bytes(), increment.as_bytes(), &mut out);
    assert_eq!(result, Ok(()), "{old} + {increment}");
    assert_eq!(String::from_utf8_lossy(&out), want, "{old} + {increment}");
}

#[test]
fn sums_are_those_of_redis() {
    check_sum("0.1", "0.2", "0.3");
    check_sum("10.50", "0.1", "10.6");
    check_sum("5.0e3", "2.0e2", "5200");
    check_sum("0", "-0", "0");
    check_sum("10", "-10", "0");
    check_sum("1", "-1.5", "-0.5");
    check_sum("-1", "0.25", "-0.75");
    check_sum("3", "1.1", "4.1");
    check_sum("9.99", "0.01", "10");
    check_sum("1e20", "1", "100000000000000000000");
    check_sum("123456789012345678", "0.5", "123456789012345678.5");
    check_sum(".5", "5.", "5.5");
    check_sum("+1", "+1", "2");
    check_sum("1e-3", "0", "0.001");
    check_sum("999999999999", "0.000001", "999999999999.00000101327896118");
}

#[test]
fn hexadecimal_numbers_are_read_as_c_does() {
    check_sum("0x10", "1", "17");
    check_sum("1", "0x1p4", "17");
    check_sum("1", "0x1.8p1", "4");
    check_sum("1", "0X1F", "32");
    check_sum("1", "-0x1", "0");
    check_sum("1", "0x.8", "1.5");
    check_sum("0", "0x1p-4", "0.0625");
    check_sum("0", "0x0p9", "0");
    check_sum("1", "0xffffffffffffffff", "18446744073709551616");
    for text in ["0x", "0x.", "0xg", "0x1p", "0xp1", "x1", "0x1.2.3", "0x-1", "0x1p-20000"] {
        assert!(!is_float(text.as_bytes()), "{text}");
    }
}

#[test]
fn sums_are_rounded_to_seventeen_places() {
    check_sum("0", "1e-17", "0.00000000000000001");
    check_sum("0", "1e-18", "0");
    check_sum("0", "-1e-18", "0");
    check_sum("0", "5e-18", "0");
    check_sum("0", "5.1e-18", "0.00000000000000001");
    check_sum("0", "15e-18", "0.00000000000000002");
    check_sum("0", "25e-18", "0.00000000000000002");
    check_sum("0", "0.999999999999999999", "1");
    check_sum("0", "-9.999999999999999999", "-10");
    check_sum("0", "0.123456789012345678901", "0.12345678901234568");
}

#[test]
fn only_numbers_are_added() {
    let bad = ["", " 1", "1 ", "abc", "1a", "1e", "1e+", ".", "-", "nan", "--1", "1.2.3", "e5"];
    for text in bad {
        let mut out = Vec::new();
        let result = add_float(b"1", text.as_bytes(), &mut out);
        assert_eq!(result, Err(ErrorReply::NotAFloat), "{text}");
        assert!(out.is_empty() && !is_float(text.as_bytes()));
    }
}

#[test]
fn sums_out_of_range_are_refused() {
    let mut out = Vec::new();
    for infinite in ["inf", "-INF", "+Infinity"] {
        assert!(is_float(infinite.as_bytes()));
        let result = add_float(b"1", infinite.as_bytes(), &mut out);
        assert_eq!(result, Err(ErrorReply::FloatOverflow), "{infinite}");
    }
    let sum = add_float(b"9e4931", b"9e4931", &mut out);
    assert_eq!(sum, Err(ErrorReply::FloatOverflow));
    for out_of_range in ["1e4933", "1e99999999999999999999", "1e-4951", "1e-99999999999"] {
        assert!(!is_float(out_of_range.as_bytes()), "{out_of_range}");
    }
    for tiny in ["1e-4950", "2e-4951", "-3e-4940"] {
        check_sum("0", tiny, "0");
    }
    assert!(out.is_empty());
}

#[test]
fn the_widest_sums_are_written_in_full() {
    // (old, start of the sum, its length), as Redis 7.0.15 answered.
    let recorded = [
        ("1e4932", "100000000000000000000601894938", 4933),
        ("0x1p5000", "141246703213942603683520966701", 1506),
        ("1e4931", "100000000000000000000601894938", 4932),
    ];
    for (old, start, len) in recorded {
        let mut out = Vec::new();
        add_float(old.as_bytes(), b"0", &mut out).expect("a number");
        let text = String::from_utf8(out).expect("digits");
        assert!(text.len() == len && text.starts_with(start), "{old}: {} {text}", text.len());
        check_sum(&text, "0", &text);
    }
}

#[test]
fn the_digits_of_a_text_are_its_own_and_those_of_its_exponent() {
    let cases = [("1.5", 3), ("1e4900", 4906), ("-1E-12", 18), ("1e+0007", 14), ("1e999999", 5008)];
    for (text, want) in cases {
        assert_eq!(float_digits(text.as_bytes()), want, "{text}");
    }
}

#[test]
fn doubles_take_their_shortest_form() {
    let cases = [
        (0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (1e300, "1e300"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ];
    for (value, want) in cases {
        assert_eq!(double_text(value), want);
    }
}
