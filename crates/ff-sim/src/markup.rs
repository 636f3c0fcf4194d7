//! Texts of others in HTML and SVG.

use std::fmt::{self, Write as _};

/// Shows a text as it is in HTML and SVG, in content and in quoted attributes; characters that nobody sees, and those
/// that change the order of others, are shown by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in self.0.chars() {
            let is_hidden = (one.is_control() && one != '\n')
                || matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            match one {
                '<' => to.write_str("&lt;")?,
                '>' => to.write_str("&gt;")?,
                '&' => to.write_str("&amp;")?,
                '"' => to.write_str("&quot;")?,
                '\'' => to.write_str("&#39;")?,
                _ if is_hidden => write!(to, "{}", one.escape_unicode())?,
                _ => to.write_char(one)?,
            }
        }
        Ok(())
    }
}
