package muster

import "time"

// Limits of the result cache.
const (
	DefaultCacheLifetime = CacheLifetime(30 * 24 * time.Hour)  // of cache: true
	MaxCacheLifetime     = CacheLifetime(365 * 24 * time.Hour) // of cache: DURATION
	MaxCachedTasks       = 10_000                              // tasks of a stage with cache
)

// CacheLifetime is how old a result may be that a task takes from the cache of its project in place of running, and how long its own result is
// kept there; 0 means that the task does not use the cache. In JSON it is true (DefaultCacheLifetime), false, or a duration.
type CacheLifetime Duration

// Duration returns the lifetime.
func (c CacheLifetime) Duration() Duration { return Duration(c) }

// MarshalJSON writes seconds, as Duration does.
func (c CacheLifetime) MarshalJSON() ([]byte, error) { return Duration(c).MarshalJSON() }

// UnmarshalJSON reads true, false or a duration.
func (c *CacheLifetime) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*c = DefaultCacheLifetime
		return nil
	case "false":
		*c = 0
		return nil
	}
	d := Duration(*c)
	if err := d.UnmarshalJSON(b); err != nil {
		return Errorf(Invalid, "%s is not a lifetime: write true, or a duration such as 30d", Truncate(string(b)))
	}
	*c = CacheLifetime(d)
	return nil
}

// TaskCache is how a task uses the result cache, once that was looked up.
type TaskCache struct {
	Key    string       `json:"key"`             // digest of Fields
	Fields []CacheField `json:"fields"`          // what determines the result
	Origin TaskID       `json:"origin,omitzero"` // of a hit: the task that ran
}

// CacheField is one part of what determines the result of a task, such as run, env.SEED or inputs.model.pt. Values that are long, or may be
// secret, are their SHA-256.
type CacheField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CacheEntry is a result in the cache of a project. It is independent of the task that it came from, which may be deleted.
type CacheEntry struct {
	Project   string
	Key       string // unique in the project
	Kind      string
	Name      string // of the stage
	Origin    TaskID
	CreatedAt Time
	ExpiresAt Time
	Hits      int
	HitAt     Time // of the last hit; 0 for none
	Fields    []CacheField

	ExitCode  *int
	Metrics   map[string]float64
	Result    []byte // JSON
	Artifacts []Artifact
	Image     string
}

// CacheHit is the use of an entry.
type CacheHit struct {
	Project, Key string
	At           Time
}
