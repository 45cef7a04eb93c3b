// Package dialecttest is what every gateway must do, as tests: Conform plays whole lives of tasks with scripted workers of a
// system against a real server, and each case is named by the sentence that it proves. What only some systems can do is said in Can.
package dialecttest
