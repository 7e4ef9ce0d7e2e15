//! strftime_now for templates, by hand: a date library would be the largest part of this crate. C locale.

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];

struct Moment {
    year: i64,
    month: i64,   // 1..=12
    day: i64,     // 1..=31
    weekday: i64, // 0 = Sunday
    yearday: i64, // 1..=366
    second_of_day: i64,
    unix_seconds: i64,
    offset_seconds: i64,
}

/// Civil date from days since 1970: H. Hinnant, "chrono-compatible low-level date algorithms", 2013.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

impl Moment {
    fn new(unix_seconds: i64, offset_seconds: i32) -> Moment {
        let local = unix_seconds.saturating_add(i64::from(offset_seconds));
        let days = local.div_euclid(86_400);
        let (year, month, day) = civil(days);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][(month - 1) as usize];
        Moment {
            year,
            month,
            day,
            weekday: (days + 4).rem_euclid(7),
            yearday: before + day + i64::from(month > 2 && is_leap(year)),
            second_of_day: local.rem_euclid(86_400),
            unix_seconds,
            offset_seconds: i64::from(offset_seconds),
        }
    }

    fn hour12(&self) -> i64 {
        (self.second_of_day / 3600 + 11) % 12 + 1
    }

    /// A number with its width and padding, or a text.
    fn field(&self, directive: char) -> Option<(i64, usize, char)> {
        let second = self.second_of_day;
        Some(match directive {
            'd' => (self.day, 2, '0'),
            'e' => (self.day, 2, ' '),
            'm' => (self.month, 2, '0'),
            'Y' => (self.year, 1, '0'),
            'y' => (self.year.rem_euclid(100), 2, '0'),
            'C' => (self.year.div_euclid(100), 2, '0'),
            'H' => (second / 3600, 2, '0'),
            'k' => (second / 3600, 2, ' '),
            'I' => (self.hour12(), 2, '0'),
            'l' => (self.hour12(), 2, ' '),
            'M' => (second / 60 % 60, 2, '0'),
            'S' => (second % 60, 2, '0'),
            'f' => (0, 6, '0'),
            'j' => (self.yearday, 3, '0'),
            'w' => (self.weekday, 1, '0'),
            'u' => ((self.weekday + 6) % 7 + 1, 1, '0'),
            'U' => ((self.yearday + 6 - self.weekday) / 7, 2, '0'),
            'W' => ((self.yearday + 6 - (self.weekday + 6) % 7) / 7, 2, '0'),
            's' => (self.unix_seconds, 1, '0'),
            _ => return None,
        })
    }

    fn word(&self, directive: char) -> Option<String> {
        let day = DAYS[self.weekday as usize];
        let month = MONTHS[(self.month - 1) as usize];
        let minutes = self.offset_seconds.abs() / 60;
        let sign = if self.offset_seconds < 0 { '-' } else { '+' };
        Some(match directive {
            'A' => day.to_string(),
            'a' => day[..3].to_string(),
            'B' => month.to_string(),
            'b' | 'h' => month[..3].to_string(),
            'p' => if self.second_of_day < 43_200 { "AM" } else { "PM" }.to_string(),
            'P' => if self.second_of_day < 43_200 { "am" } else { "pm" }.to_string(),
            'z' => format!("{sign}{:02}{:02}", minutes / 60, minutes % 60),
            'n' => "\n".to_string(),
            't' => "\t".to_string(),
            '%' => "%".to_string(),
            _ => return None,
        })
    }
}

fn composite(directive: char) -> Option<&'static str> {
    Some(match directive {
        'F' => "%Y-%m-%d",
        'T' | 'X' => "%H:%M:%S",
        'R' => "%H:%M",
        'D' | 'x' => "%m/%d/%y",
        'r' => "%I:%M:%S %p",
        'c' => "%a %b %e %H:%M:%S %Y",
        _ => return None,
    })
}

pub fn strftime(format: &str, unix_seconds: i64, offset_seconds: i32) -> String {
    let moment = Moment::new(unix_seconds, offset_seconds);
    let mut out = String::new();
    write(&moment, format, &mut out);
    out
}

// Composite directives expand once: they hold no composites themselves.
fn write(moment: &Moment, format: &str, out: &mut String) {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(mut directive) = chars.next() else {
            out.push('%');
            return;
        };
        // glibc's "%-d": no padding.
        let bare = directive == '-';
        if bare {
            directive = chars.next().unwrap_or('-');
        }
        if let Some((value, width, pad)) = moment.field(directive) {
            let text = value.to_string();
            (text.len()..if bare { 0 } else { width }).for_each(|_| out.push(pad));
            out.push_str(&text);
        } else if let Some(word) = moment.word(directive) {
            out.push_str(&word);
        } else if let Some(format) = composite(directive) {
            write(moment, format, out);
        } else {
            out.push('%');
            out.push(directive);
        }
    }
}
