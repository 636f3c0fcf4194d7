//! Texts of others in HTML and SVG, and on a terminal.

use std::fmt::{self, Write as _};

/// Shows a text as it is in HTML and SVG, in content and in quoted attributes; invisible
/// characters, and those that change the order of others, are shown by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in self.0.chars() {
            match one {
                '<' => to.write_str("&lt;")?,
                '>' => to.write_str("&gt;")?,
                '&' => to.write_str("&amp;")?,
                '"' => to.write_str("&quot;")?,
                '\'' => to.write_str("&#39;")?,
                _ if is_hidden(one) => write!(to, "{}", one.escape_unicode())?,
                _ => to.write_char(one)?,
            }
        }
        Ok(())
    }
}

/// Shows a text on a terminal: what would move its cursor, or change the order of others, is shown
/// by its number.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a>(pub &'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|one| match one {
            _ if is_hidden(one) => write!(to, "{}", one.escape_unicode()),
            _ => to.write_char(one),
        })
    }
}

/// Whether nobody sees a character, or it changes the order of others.
fn is_hidden(one: char) -> bool {
    (one.is_control() && one != '\n')
        || matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands_of_others() {
        let text = "é\n\u{1b}]0;title\u{7}\r\u{9b}2J\u{202e}";
        let shown = "é\n\\u{1b}]0;title\\u{7}\\u{d}\\u{9b}2J\\u{202e}";
        assert_eq!(Visible(text).to_string(), shown);
    }
}
