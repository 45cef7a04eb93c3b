package wire

import "github.com/muster-dev/muster"

// Cache is results in the cache of a project.
type Cache struct {
	Entries []CacheEntry `json:"entries" doc:"the newest first"`
}

// CacheEntry is a result that identical tasks of the project take in place of running.
type CacheEntry struct {
	Key       string        `json:"key" doc:"SHA-256 of what determines the result"`
	Kind      string        `json:"kind"`
	Stage     string        `json:"stage"`
	Origin    muster.TaskID `json:"origin" doc:"the task that ran; it may have been removed"`
	CreatedAt muster.Time   `json:"created_at"`
	ExpiresAt muster.Time   `json:"expires_at"`
	Hits      int           `json:"hits" doc:"how many tasks took the result"`
	HitAt     muster.Time   `json:"hit_at,omitzero" doc:"the last time"`
	Size      muster.Size   `json:"size" doc:"bytes of its artifacts"`
}

// CacheCleared is what a request deleted.
type CacheCleared struct {
	Deleted int `json:"deleted" doc:"entries"`
}

// TaskCache says how a task uses the result cache.
type TaskCache struct {
	Task        muster.TaskID    `json:"task"`
	Outcome     string           `json:"outcome" enum:"off,pending,hit,miss" doc:"off: the task does not use the cache; pending: it was not looked up yet, or waits for an identical task"`
	Summary     string           `json:"summary"`
	Key         string           `json:"key,omitempty"`
	Origin      *muster.TaskID   `json:"origin,omitempty" doc:"of a hit: the task that ran"`
	Nearest     *CacheEntry      `json:"nearest,omitempty" doc:"of a miss: the entry of another task that differs least, among the newest 1000"`
	Differences []CacheDifferent `json:"differences,omitempty" doc:"between the task and the nearest entry"`
}

// CacheDifferent is a part of what determines the result in which a task and an entry differ. Long values are their SHA-256.
type CacheDifferent struct {
	Name  string `json:"name" example:"env.SEED"`
	Task  string `json:"task,omitempty" doc:"absent if the task does not have it"`
	Entry string `json:"entry,omitempty" doc:"absent if the entry does not have it"`
}
