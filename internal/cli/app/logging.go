package app

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// LogOptions is what a program that keeps running writes to standard error. The zero value is not valid: see DefaultLogOptions.
type LogOptions struct {
	Level  string // one of logLevels
	Format string // one of logFormats
}

// DefaultLogOptions returns the defaults.
func DefaultLogOptions() LogOptions { return LogOptions{Level: "info", Format: "text"} }

//nolint:gochecknoglobals // constant tables
var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

// Flags are the options for it.
func (l *LogOptions) Flags() []cli.Flag {
	const group = "Log"
	return []cli.Flag{
		Option{Name: "log-level", Usage: "log from this `LEVEL` on: debug, info, warn or error", Group: group}.WithEnv().EnumVar(&l.Level, logLevels...),
		Option{Name: "log-format", Usage: "log as `FORMAT`: text or json", Group: group}.WithEnv().EnumVar(&l.Format, logFormats...),
	}
}

// Logger writes to w. Its errors are Invalid.
func (l *LogOptions) Logger(w io.Writer) (*slog.Logger, error) {
	if !slices.Contains(logLevels, l.Level) {
		return nil, muster.Errorf(muster.Invalid, "%q is not a log level: write one of %s", l.Level, strings.Join(logLevels, ", "))
	}
	if !slices.Contains(logFormats, l.Format) {
		return nil, muster.Errorf(muster.Invalid, "%q is not a log format: write one of %s", l.Format, strings.Join(logFormats, ", "))
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, muster.Errorf(muster.Internal, "log level: %w", err)
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
