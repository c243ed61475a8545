//! Typed getters. `get_x(key)` uses the built-in default and fails if there is none. `get_x_or(key,
//! default)` uses the caller's default, for example a computed one, if the table has none.

use super::{ConfigError, Configuration, ResolvedValue, Result, TimeUnit, values};

macro_rules! getters {
    ($($(#[$doc:meta])* $get:ident, $get_or:ident, $ty:ty, $expected:expr, $parse:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`ConfigError::Value`] if the value is malformed, [`ConfigError::Missing`] if the key
        /// has neither value nor default, [`ConfigError::Substitution`] if `${x}` cannot be
        /// resolved.
        pub fn $get(&self, key: &str) -> Result<$ty> {
            self.parsed(key, $expected, $parse)?.ok_or_else(|| missing(key, $expected))
        }

        /// The same, or `default` if neither the sources nor the built-in table have a value.
        ///
        /// # Errors
        /// [`ConfigError::Value`] if the value is malformed, [`ConfigError::Substitution`] if
        /// `${x}` cannot be resolved.
        pub fn $get_or(&self, key: &str, default: $ty) -> Result<$ty> {
            Ok(self.parsed(key, $expected, $parse)?.unwrap_or(default))
        }
    )* };
}

impl Configuration {
    /// The text of `key` with `${x}` resolved, not trimmed; `None` if it has neither value nor
    /// default.
    ///
    /// # Errors
    /// [`ConfigError::Substitution`] if references in the value are circular or nested too deep.
    pub fn get(&self, key: &str) -> Result<Option<String>> {
        Ok(self.find(key)?.map(|found| found.value))
    }

    /// The trimmed text of `key`; `None` if it has neither value nor default, or an empty one.
    ///
    /// # Errors
    /// As [`Configuration::get`].
    pub fn get_trimmed(&self, key: &str) -> Result<Option<String>> {
        let trimmed = self.find(key)?.map(|found| found.value.trim().to_owned());
        Ok(trimmed.filter(|text| !text.is_empty()))
    }

    getters! {
        /// The trimmed, non-empty text of a key.
        get_str, get_str_or, String, "a text", |text| Some(text.to_owned());
        /// A 32-bit integer, decimal or `0x` hexadecimal.
        get_i32, get_i32_or, i32, "a 32-bit integer", values::integer;
        /// A 64-bit integer, decimal or `0x` hexadecimal.
        get_i64, get_i64_or, i64, "a 64-bit integer", values::integer;
        /// A 64-bit integer that is not negative, decimal or `0x` hexadecimal.
        get_u64, get_u64_or, u64, "an integer of 0 or more", values::integer;
        /// A 32-bit floating point number.
        get_f32, get_f32_or, f32, "a number", values::float;
        /// A 64-bit floating point number.
        get_f64, get_f64_or, f64, "a number", values::float;
        /// A TCP port.
        get_port, get_port_or, u16, "a port, 0 to 65535", values::integer;
        /// A size in bytes, with at most one binary suffix `k m g t p e`. Some keys give negative
        /// sizes a meaning.
        get_size, get_size_or, i64, "bytes, or a number with one suffix k, m, g, t, p or e", values::size;
    }

    /// A boolean, `true` or `false` in any case. As in Hadoop any other text counts as not set; it
    /// is logged as a warning.
    ///
    /// # Errors
    /// [`ConfigError::Missing`] if the key has neither value nor default,
    /// [`ConfigError::Substitution`] if `${x}` cannot be resolved.
    pub fn get_bool(&self, key: &str) -> Result<bool> {
        self.boolean(key)?.ok_or_else(|| missing(key, "true or false"))
    }

    /// The same, or `default` if neither the sources nor the built-in table have a value.
    ///
    /// # Errors
    /// [`ConfigError::Substitution`] if references in the value are circular or nested too deep.
    pub fn get_bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.boolean(key)?.unwrap_or(default))
    }

    /// A umask in Hadoop's two forms (`UmaskParser`): octal digits such as `027`, or the
    /// permissions that it leaves, such as `u=rwx,g=r-x,o=`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if it is neither, [`ConfigError::Substitution`] as above.
    pub fn get_umask_or(&self, key: &str, default: u32) -> Result<u32> {
        let Some(text) = self.get_trimmed(key)?.filter(|text| !text.is_empty()) else { return Ok(default) };
        values::umask(&text).ok_or_else(|| self.unusable(key, "a umask, such as 022 or u=rwx,g=rx,o=rx"))
    }

    /// A duration in `unit`: an integer with a suffix `ns us ms s m h d`, or without one, in
    /// `unit`. Rounded toward zero.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if the value is malformed, [`ConfigError::Missing`] if the key has
    /// neither value nor default, [`ConfigError::Substitution`] if `${x}` cannot be resolved.
    pub fn get_time(&self, key: &str, unit: TimeUnit) -> Result<i64> {
        self.time(key, unit)?.ok_or_else(|| missing(key, EXPECTED_TIME))
    }

    /// The same, or `default` if neither the sources nor the built-in table have a value.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if the value is malformed, [`ConfigError::Substitution`] if `${x}`
    /// cannot be resolved.
    pub fn get_time_or(&self, key: &str, unit: TimeUnit, default: i64) -> Result<i64> {
        Ok(self.time(key, unit)?.unwrap_or(default))
    }

    /// A list separated by commas or line ends, with trimmed items and without empty ones; empty if
    /// the key has no value.
    ///
    /// # Errors
    /// [`ConfigError::Substitution`] if references in the value are circular or nested too deep.
    pub fn get_list(&self, key: &str) -> Result<Vec<String>> {
        Ok(self.find(key)?.map(|found| values::list(&found.value)).unwrap_or_default())
    }

    /// The error for a value of `key` that parses but is not usable: for range checks by the
    /// caller.
    pub fn unusable(&self, key: &str, expected: &str) -> ConfigError {
        match self.find(key) {
            Ok(Some(found)) => ConfigError::unusable(key, found.value, found.source, expected),
            Ok(None) => missing(key, expected),
            Err(error) => error,
        }
    }

    fn time(&self, key: &str, unit: TimeUnit) -> Result<Option<i64>> {
        self.parsed(key, EXPECTED_TIME, |text| values::time(text, unit, unit))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        let Some(found) = self.find_non_empty(key)? else { return Ok(None) };
        let parsed = values::boolean(found.value.trim());
        if parsed.is_some() {
            return Ok(parsed);
        }
        tracing::warn!(key, value = ?found.value, source = %found.source, "not true or false, the default is used");
        Ok(self.find_default(key)?.and_then(|default| values::boolean(default.value.trim())))
    }

    fn parsed<T>(&self, key: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(found) = self.find_non_empty(key)? else { return Ok(None) };
        let parsed = parse(found.value.trim());
        parsed.map(Some).ok_or_else(|| ConfigError::unusable(key, found.value, found.source, expected))
    }

    /// The value, or the built-in default if the value is blank.
    fn find_non_empty(&self, key: &str) -> Result<Option<ResolvedValue>> {
        let not_blank = |found: &ResolvedValue| !found.value.trim().is_empty();
        match self.find(key)?.filter(not_blank) {
            Some(found) => Ok(Some(found)),
            None => Ok(self.find_default(key)?.filter(not_blank)),
        }
    }
}

const EXPECTED_TIME: &str = "an integer, with at most one suffix ns, us, ms, s, m, h or d";

fn missing(key: &str, expected: &str) -> ConfigError {
    ConfigError::Missing { key: key.to_owned(), expected: expected.to_owned() }
}
