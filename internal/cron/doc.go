// Package cron decides when a schedule starts runs. It is pure: the time is an argument, and nothing is stored.
//
// An Expression is what cron(5) calls the five fields of time and date. Its fields are times of the wall clock in a zone, and the
// clock there is changed twice a year in many zones. What a user expects then depends on the expression:
//
//   - If the field of the hour begins with *, runs follow the real time: "*/15 * * * *" has a run each 15 minutes, also during the hour
//     that the clock shows twice, and none during the hour that it skips, because no time passes.
//   - Otherwise each time of the wall clock has one run a day. "30 2 * * *" runs at the end of the hour that the clock skips, and only
//     in the first of the two hours that it shows as 2.
//
// This is how cron of Vixie and of cronie works. Kubernetes has no run in the hour that is skipped, and two in the one that is repeated.
//
// Plan.Step says what to do at a time, as one step that a caller stores as one transaction: so after a crash between any two of them the
// next call continues where the last one ended, and no run is started twice or forgotten.
package cron
