// Package deploy has the service files of Muster, for packages and muster worker install.
package deploy

import "embed"

// Files are the units of systemd and the property lists of launchd, in the folders systemd and launchd.
//
//go:embed systemd launchd
var Files embed.FS
