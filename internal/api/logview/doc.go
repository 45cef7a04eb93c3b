// Package logview reads parts of long logs: windows of records around an offset, and records that match a search. It uses the
// index of a log to begin near the place that is asked for, so that the memory and the time of a call do not depend on the size of
// the log.
package logview
