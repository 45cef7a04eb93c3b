// Package redact replaces the values of a task's secrets in what leaves the worker: output, progress, results and messages.
//
// A value is replaced by *** as it is, and as it is written in base64 (both alphabets, at any position in other data), in a URL and in a JSON
// string. So is each line of it, because programs print keys line by line. White space around a value or a line does not count, and what is
// shorter than MinSize then is not replaced. A value may be divided by line breaks, as the base64 of a long one is: all of it is replaced but
// the part before the first break, if that has fewer than MinSize bytes. Line breaks are kept.
//
// Texts are searched for the first MinSize bytes of all forms at once, by their hash, and compared with the forms that begin with them. All
// occurrences count, also if they overlap, and occurrences without a gap are one ***. Splitting a text into pieces does not change the result:
// see Stream.
//
// # What is not promised
//
// A program that wants to disclose a value can: it can reverse it, encrypt it, or print it in other encodings, such as hexadecimal or base64 of
// base64, or with a space between all characters. A part of a value or of a line is not replaced.
package redact
