//! Text inside HTML.

use core::fmt::{self, Write as _};

/// Displays a text so that HTML shows it as it is, in content and in quoted attributes.
///
/// Control characters, which a terminal or an editor might obey, are shown as `\u{…}`; so are the
/// invisible ones that reorder text.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if c.is_control() || reorders(c) => write!(f, "{}", c.escape_unicode())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Whether a character is invisible and reorders the text around it.
pub fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_become_text() {
        let hostile = "<script>alert('1')</script> \"a\" & \u{1b}[2J \u{202e}x ü";
        assert_eq!(
            Escaped(hostile).to_string(),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &quot;a&quot; &amp; \
             \\u{1b}[2J \\u{202e}x ü"
        );
    }
}
