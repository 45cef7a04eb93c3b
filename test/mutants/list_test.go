package mutants

// withoutGuard are tests of what no single line guards, with the reason.
var withoutGuard = map[string]string{
	"TestKillLeavesAValidChain":            "records of a group are one transaction of the store",
	"TestARestoredServerContinuesTheChain": "the log is in the database that is restored",
	"TestReadinessFloodIsCheap":            "the answer needs a lock and a cached result; the test is for those who add more to it",
	"TestPrefixOfAKeyDoesNotAuthenticate":  "a key is found by the hash of a whole token; no line accepts less",
	"TestArtifactURLsEndWithTheirJob":      "nothing is stored for a URL, and the file is looked up in its job",
	"TestUsedUpTokensKeepTheirWorkers":     "no code looks at the uses of a token when its workers connect; the test is for changes that do",
}

// list has a mutant for each test of test/attack. Where a test has several statements, it has one for each guard.
var list = []mutant{
	{
		tests: []string{"TestArtifactURLsReadOneFile"}, file: "internal/artifacturl/artifacturl.go",
		guard: `muster.ArtifactPath(of.Task, of.Name), of.SHA256, expires}`, without: `of.SHA256, expires}`,
	},
	{
		tests: []string{"TestArtifactURLsReadOneFile"}, file: "internal/artifacturl/artifacturl.go",
		guard: `!hmac.Equal([]byte(query.Get(paramSignature)), []byte(s.sign(&of, query.Get(paramExpires)))) {`, without: `false {`,
	},
	{
		tests: []string{"TestArtifactURLsExpire"}, file: "internal/artifacturl/artifacturl.go",
		guard: `if now.Unix() >= seconds {`, without: `if false {`,
	},
	{
		tests: []string{"TestArtifactURLsExpire"}, file: "internal/artifacturl/artifacturl.go",
		guard: `muster.ArtifactPath(of.Task, of.Name), of.SHA256, expires}`, without: `muster.ArtifactPath(of.Task, of.Name), of.SHA256}`,
	},
	{
		tests: []string{"TestArtifactURLsAreForOneContent"}, file: "internal/api/artifacts.go",
		guard: `if file := principalOf(r.Context()).File; file != "" && file != artifacts[i].SHA256 {`, without: `if false {`,
	},
	{
		tests: []string{"TestOnlyTheTaskSeesItsURLs"}, file: "internal/api/tasks.go",
		guard: `return muster.ArtifactPath(muster.TaskID{Job: task.Job, Num: num}, name)`, without: `return s.URLs.ForTask("", muster.TaskID{Job: task.Job, Num: num}, name, "", 0)`,
	},
	{
		tests: []string{"TestSpecsCannotForgeURLs"}, file: "internal/dag/check.go",
		guard: `if isArtifactURL(body) {`, without: `if false {`,
	},
	{
		tests: []string{"TestSpecsCannotForgeURLs"}, file: "internal/dag/template.go",
		guard: `|| isItemReference(body) || isArtifactURL(body)
}`, without: `|| isItemReference(body)
}`,
	},
	{
		tests: []string{"TestRootInContainersIsNotRootOfTheMachine"}, file: "internal/agent/container/userns.go",
		guard: `p.UserNamespace = userns.Size`, without: `users.Mount = false`,
	},
	{
		tests: []string{"TestTaskSeesNoKeyrings"}, file: "internal/agent/isolation/view/view_linux.go",
		guard: `if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {`, without: `if err := error(nil); err != nil {`,
	},
	{
		tests: []string{"TestContainersCannotFillTheDisk"}, file: "internal/agent/meter/subject.go",
		guard: `folders = append(folders, sub.Written...)`, without: ``,
	},
	{
		tests: []string{"TestMountsCannotBeReplacedAfterTheirCheck"}, file: "internal/agent/container/mounts.go",
		guard: `case os.Geteuid() != 0 || !c.isLocal(about) || about.Rootless || about.Remapped:`, without: `case os.Geteuid() >= 0:`,
	},
	{
		tests: []string{"TestRegistrySecretsStayWithTheWorker"}, file: "internal/agent/docker/images.go",
		guard: `if failed, ok := errors.AsType[*engineError](err); ok && creds != nil {`, without: `if failed, ok := errors.AsType[*engineError](err); ok && false {`,
	},
	{
		tests: []string{"TestRegistrySecretsStayWithTheWorker"}, file: "secret.go",
		guard: `if s.Env == "" && s.File == "" && s.Registry == "" {`, without: `if s.Env == "" && s.File == "" {`,
	},
	{
		tests: []string{"TestRegistrySecretsStayWithTheWorker"}, file: "internal/specvalidate/container.go",
		guard: `case own != "" && own != registry:`, without: `case false:`,
	},
	{
		tests: []string{"TestPrivateImagesAreNotForOthers"}, file: "internal/agent/container/pull.go",
		guard: `case err == nil && c.private.allows(img, from):`, without: `case err == nil:`,
	},
	{
		tests: []string{"TestPrivateImagesAreNotForOthers"}, file: "internal/agent/container/pull.go",
		guard: `if !c.private.allows(img, from) {`, without: `if false {`,
	},
	{
		tests: []string{"TestPrivateImagesAreNotForOthers"}, file: "internal/agent/container/privateimages.go",
		guard: `from.creds, from.secret, from.id = creds, s.Name, p.credentialsID(creds)`, without: `from.creds, from.secret = creds, s.Name`,
	},
	{
		tests: []string{"TestWorkersRunWhatTheirOwnerSigned"}, file: "internal/signedjob/verifier.go",
		guard: `if sig == nil {`, without: `if sig == nil {
return t.Spec, nil
}
if false {`,
	},
	{
		tests: []string{"TestSignaturesOfOtherKeysAreRejected"}, file: "internal/signedjob/verifier.go",
		guard: `return bytes.Equal(k.Key.Marshal(), parsed.Key.Marshal())`, without: `return true || bytes.Equal(k.Key.Marshal(), parsed.Key.Marshal())`,
	},
	{
		tests: []string{"TestSignaturesForOtherPurposesAreRejected"}, file: "internal/signedjob/statement.go",
		guard: `parsed.Verify(Namespace,`, without: `parsed.Verify(parsed.Namespace,`,
	},
	{
		tests: []string{"TestAlteredStatementsAreRejected"}, file: "internal/sshsig/sshsig.go",
		guard: `if s.Key.Verify(signedData(namespace, s.hash, message), s.sig) != nil {`, without: `if false {`,
	},
	{
		tests: []string{"TestExpiredSignaturesAreRejected"}, file: "internal/signedjob/statement.go",
		guard: `case at >= s.ExpiresAt:`, without: `case false:`,
	},
	{
		tests: []string{"TestSignaturesOfTheFutureAreRejected"}, file: "internal/signedjob/statement.go",
		guard: `case at.Add(muster.Duration(ClockSkew)) < s.SignedAt:`, without: `case false:`,
	},
	{
		tests: []string{"TestSignedJobsAreNotReplayed"}, file: "internal/signedjob/verifier.go",
		guard: `if owner != t.Job {`, without: `if owner != t.Job && t.Job == "" {`,
	},
	{
		tests: []string{"TestServerCannotChangeSignedTasks"}, file: "internal/signedjob/verifier.go",
		guard: `if field != "" {`, without: `if false {`,
	},
	{
		tests: []string{"TestServerCannotLiftSignedLimits"}, file: "internal/signedjob/verifier.go",
		guard: `if amount := otherAmount(&spec.Resources, &t.Grant); amount != "" {`, without: `if amount := ""; amount != "" {`,
	},
	{
		tests: []string{"TestServerCannotMoveSignedTasks"}, file: "internal/signedjob/verifier.go",
		guard: `case t.Project != job.Project:`, without: `case false:`,
	},
	{
		tests: []string{"TestServerCannotUseOtherWorkers"}, file: "internal/signedjob/verifier.go",
		guard: `if named := spec.Where.Workers; len(named) > 0 &&`, without: `if named := spec.Where.Workers; false &&`,
	},
	{
		tests: []string{"TestServerCannotInventElements"}, file: "internal/signedjob/verifier.go",
		guard: `|| t.Element != s.spec.Element(element) {`, without: `{`,
	},
	{
		tests: []string{"TestServerCannotAddInputs"}, file: "internal/signedjob/verifier.go",
		guard: `case len(t.Inputs) > 0:`, without: `case false:`,
	},
	{
		tests: []string{"TestServerCannotMakeGangs"}, file: "internal/signedjob/verifier.go",
		guard: `case t.Gang != nil:`, without: `case false:`,
	},
	{
		tests: []string{"TestServerCannotReplaceCheckpoints"}, file: "internal/agent/session.go",
		guard: `t.Checkpoint = "" // the server`, without: `_ = t // the server`,
	},
	{
		tests: []string{"TestServerCannotPlantCheckpoints"}, file: "internal/agent/session.go",
		guard: `t.Fresh = true `, without: `t.Fresh = false `,
	},
	{
		tests: []string{"TestServerCannotReuseIDsOfSignedJobs"}, file: "internal/agent/nonces.go",
		guard: `case taken:`, without: `case taken && false:`,
	},
	{
		tests: []string{"TestServerCannotExecuteCommands"}, file: "internal/workerd/worker.go",
		guard: `onExec = nil //`, without: `_ = onExec //`,
	},
	{
		tests: []string{"TestUnsignedJobsAreNotPlacedOnStrictWorkers"}, file: "internal/placement/filter.go",
		guard: `return b.Worker.Allow != nil && b.Worker.Allow.SignedBy != nil`, without: `return false`,
	},
	{
		tests: []string{"TestUnsignedJobsAreNotPlacedOnStrictWorkers"}, file: "internal/policy/policy.go",
		guard: `if a != nil && a.SignedBy != nil && !slices.Contains(a.SignedBy, t.SignedBy) {`, without: `if false {`,
	},
	{
		tests: []string{"TestUnsignedJobsAreNotPlacedOnStrictWorkers"}, file: "internal/api/spec.go",
		guard: `spec.Tasks[i].SignedBy = ""`, without: `_ = i`,
	},
	{
		tests: []string{"TestServerRefusesSignaturesOfOtherJobs"}, file: "internal/api/spec.go",
		guard: `err = signedjob.Compare(asSigned, spec)`, without: `_ = signedjob.Compare`,
	},
	{
		tests: []string{"TestStatementsWithTooManyStagesAreRefused"}, file: "internal/signedjob/statement.go",
		guard: `if len(counted) > muster.MaxStages {`, without: `if false {`,
	},
	{
		tests: []string{"TestStatementsDoNotShowVariables"}, file: "internal/api/redact/redact.go",
		guard: `redacted.Signature = nil //`, without: `_ = redacted //`,
	},
	{
		tests: []string{"TestForgedSessionTokensAreRefused"}, file: "internal/api/sessiontoken/sessiontoken.go",
		guard: `_, err = i.parser.ParseWithClaims(token, &claims, i.keyOf)`, without: `_, _, err = i.parser.ParseUnverified(token, &claims)`,
	},
	{
		tests: []string{"TestSessionTokensEndInMinutes"}, file: "internal/api/sessiontoken/sessiontoken.go",
		guard: `Lifetime = 15 * time.Minute`, without: `Lifetime = 15 * time.Hour`,
	},
	{
		tests: []string{"TestReplayedSessionRequestsAreRefused"}, file: "internal/api/sessiontoken/sessiontoken.go",
		guard: `if _, used := nonces[nonce]; used {`, without: `if _, used := nonces[nonce]; used && false {`,
	},
	{
		tests: []string{"TestLateSessionRequestsAreRefused"}, file: "internal/handshake/handshake.go",
		guard: `if skew <= MaxSkew {`, without: `if true {`,
	},
	{
		tests: []string{"TestUnsignedSessionRequestsAreRefused"}, file: "internal/handshake/handshake.go",
		guard: `if err := check(r.PublicKey, r.text(), r.Signature); err != nil {`, without: `if err := check(r.PublicKey, r.text(), r.Signature); err != nil && false {`,
	},
	{
		tests: []string{"TestRequestsWithoutAKeyDoNotDelayRevocations"}, file: "internal/api/access/join.go",
		guard: `p, registered, err := a.checkMove(ctx, &in.Body)`, without: `a.changing.Lock()
	p, registered, err := a.checkMove(ctx, &in.Body)
	a.changing.Unlock()`,
	},
	{
		tests: []string{"TestWorkersReturnAfterARestartWhileTheirAddressIsFlooded"}, file: "internal/api/keyring/keyring.go",
		guard: `r.limits.Stale(ctx, from)`, without: `if err := r.failed(ctx, from, err); err != nil {
return auth.Principal{}, nil, err
}`,
	},
	{
		tests: []string{"TestAWrongClockIsExplained"}, file: "internal/api/access/join.go",
		guard: `a.Limits.Stale(ctx, from)`, without: `if err := a.Limits.Failed(ctx, from); err != nil {
return nil, err
}`,
	},
	{
		tests: []string{"TestAWorkersKeyIsForItself"}, file: "internal/api/access/join.go",
		guard: `auth.Object{Worker: r.Worker}`, without: `auth.Object{}`,
	},
	{
		tests: []string{"TestSessionRequestsAreForOneServer"}, file: "internal/handshake/handshake.go",
		guard: `if r.Server != server {`, without: `if false {`,
	},
	{
		tests: []string{"TestRefusalsAreSigned"}, file: "internal/api/access/join.go",
		guard: `if err != nil && p.KeyID == "" {`, without: `if err != nil {`,
	},
	{
		tests: []string{"TestRevokedWorkersDoNotUndoThat"}, file: "internal/store/sqlite/keys.go",
		guard: `if replaces != "" && (!own || by.Bounds.Worker != replaces) {`, without: `if false {`,
	},
	{
		tests: []string{"TestResetWorkersAreRevokedWithTheirToken"}, file: "internal/store/sqlite/keys.go",
		guard: `joinedBy = cmp.Or(by.JoinedBy, by.ID)`, without: `joinedBy = cmp.Or(by.ID, by.JoinedBy)`,
	},
	{
		tests: []string{"TestAJoinIsOfTheOwnerOfTheKey"}, file: "internal/api/access/join.go",
		guard: `err = handshake.CheckJoin(in.Body.PublicKey, bearerHash(ctx), in.Body.Name, in.Body.At, in.Body.Proof)`, without: `_ = bearerHash(ctx)`,
	},
	{
		tests: []string{"TestARepeatedJoinIsTheSameWorker"}, file: "internal/store/sqlite/keys.go",
		guard: `if repeated && (old.JoinedBy != joinedBy || own && old.Worker != by.Bounds.Worker) {`, without: `if false {`,
	},
	{
		tests: []string{"TestACopiedIdentityEndsBothSessions"}, file: "internal/engine/copies.go",
		guard: `return nil, e.quarantine(ctx, h, old)`, without: `return old, nil`,
	},
	{
		tests: []string{"TestALateHelloIsNoCopy"}, file: "internal/engine/copies.go",
		guard: `if err := h.Alive(alive); err != nil {`, without: `if err := h.Alive(alive); err != nil && alive == nil {`,
	},
	{
		tests: []string{"TestACopiedIdentityEndsBothSessions"}, file: "internal/api/keyring/keyring.go",
		guard: `if why := cmp.Or(key.Quarantined, r.quarantined[key.ID]); why != "" {`, without: `if why := ""; why != "" {`,
	},
	{
		tests: []string{"TestARestartedWorkerIsNoCopy"}, file: "internal/engine/copies.go",
		guard: `case <-old.closed:
	case <-timeout.C:`, without: `case <-old.closed:
	case <-timeout.C:
		return nil, e.quarantine(ctx, h, old)`,
	},
	{
		tests: []string{"TestJoinTokensWorkAsOftenAsTheySay"}, file: "internal/store/sqlite/keys.go",
		guard: `if by.Uses != nil {`, without: `if false {`,
	},
	{
		tests: []string{"TestJoinTokensAreBoundToAddresses", "TestWorkersKeepTheAddressesOfTheirToken"}, file: "internal/auth/auth.go",
		guard: `if len(p.Addresses) == 0 {`, without: `if true {`,
	},
	{
		tests: []string{"TestTokensGiveTheirTags"}, file: "internal/link/enrolment.go",
		guard: `tags := slices.Clone(e.Tags)`, without: `var tags []string`,
	},
	{
		tests: []string{"TestTagsOfTokensAreReserved"}, file: "internal/link/enrolment.go",
		guard: `case slices.Contains(e.Reserved, tag):`, without: `case false:`,
	},
	{
		tests: []string{"TestTokensDoNotTakeTagsFromWorkers"}, file: "internal/api/access/join.go",
		guard: `if slices.Contains(workers[j].Tags, tag) {`, without: `if false {`,
	},
	{
		tests: []string{"TestProjectAdminsReserveNoTags"}, file: "internal/api/access/join.go",
		guard: `if project != "" && caller.FromContext(ctx).Project != "" {`, without: `if false {`,
	},
	{
		tests: []string{"TestWorkersOfAProjectTakeItsTasksOnly"}, file: "internal/link/enrolment.go",
		guard: `o.Projects = []string{e.Project}`, without: `_ = o`,
	},
	{
		tests: []string{"TestPendingWorkersGetNoTasks"}, file: "internal/sched/session.go",
		guard: `case w.row.Pending:`, without: `case false:`,
	},
	{
		tests: []string{"TestPendingWorkersGetNoTasks"}, file: "internal/auth/auth.go",
		guard: `if who.Pending && verb != ConnectWorker {`, without: `if false {`,
	},
	{
		tests: []string{"TestPendingWorkersAreRemovedAtOnce"}, file: "internal/sched/admin.go",
		guard: `w.reachable() && !w.row.Pending || ev.Departed`, without: `w.reachable() || ev.Departed`,
	},
	{
		tests: []string{"TestFewWorkersWaitForApproval"}, file: "internal/store/sqlite/keys.go",
		guard: `if n >= store.MaxPending {`, without: `if false {`,
	},
	{
		tests: []string{"TestRevokedTokensNameTheirWorkers"}, file: "internal/api/access/keys.go",
		guard: `for i := range joined {`, without: `for i := range joined[:0] {`,
	},
	{
		tests: []string{"TestWorkersDoNotGetTheIDOfAnother/that_has_not_connected_yet"}, file: "internal/store/sqlite/keys.go",
		guard: "UNION ALL SELECT worker FROM api_key WHERE worker = ?1\n", without: "\n",
	},
	{
		tests: []string{"TestWorkersDoNotGetTheIDOfAnother/of_a_connected_worker"}, file: "internal/store/sqlite/keys.go",
		guard: "} else if taken {", without: "} else if taken && false {",
	},
	{
		tests: []string{"TestWorkersDoNotGetTheIDOfAnother/of_a_removed_worker"}, file: "internal/store/sqlite/keys.go",
		guard: "const takenID = `SELECT worker FROM revoked_key WHERE worker = ?1", without: "const takenID = `SELECT worker FROM revoked_key WHERE worker = ?1 AND 0",
	},
	{
		tests: []string{"TestWorkersDoNotGetTheIDOfAnother/that_is_a_name"}, file: "internal/store/sqlite/keys.go",
		guard: "WHERE id = ?1 OR name = ?1", without: "WHERE id = ?1",
	},
	{
		tests: []string{"TestNoWorkerHasTheIDOfAnotherAsItsName"}, file: "internal/sched/session.go",
		guard: "err == nil && named.row.ID != ev.Worker.ID {", without: "err == nil && named.row.ID != ev.Worker.ID && false {",
	},
	{
		tests: []string{"TestExpiredTokensLetNoWorkerJoin"}, file: "internal/api/keyring/keyring.go",
		guard: `if key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt {`, without: `if false {`,
	},
	{
		tests: []string{"TestWorkerCannotUseAnotherWorkersAddress"}, file: "internal/engine/address.go",
		guard: "if ip == remote || !ip", without: "if true || ip == remote || !ip",
	},
	{
		tests: []string{"TestBlobsBelongToProjects"}, file: "internal/api/blobs.go",
		guard: `ok = p.Project == ""`, without: "ok = true",
	},
	{
		tests: []string{"TestBlobsBelongToProjects"}, file: "internal/api/blobs.go",
		guard: "err = s.blobGranter.Grant(r.Context(), holderOf(principalOf(r.Context())), store.Blob{SHA256: in.SHA256, Size: size})", without: "_ = size",
	},
	{
		tests: []string{"TestWorkerReadsOnlyBlobsOfItsAttempts", "TestWorkerReadsOnlyResultsThatItsAttemptsHaveAsInputs"}, file: "internal/engine/blobneeds.go",
		guard: "return 0, false, nil\n}\n\n// unneeded", without: "return -1, true, nil\n}\n\n// unneeded",
	},
	{
		tests: []string{"TestWorkerReportsOnlyItsOwnFiles"}, file: "internal/engine/session.go",
		guard: "if err := s.checkArtifacts(ctx, f); err != nil {", without: "if err := error(nil); err != nil {",
	},
	{
		tests: []string{"TestFileOfTwoJobsIsSentOnce"}, file: "internal/api/blobs.go",
		guard: "if size, err = s.statOrMissing(ctx, sha256, size); err == nil {", without: "if size, err = s.statOrMissing(ctx, sha256, size); false {",
	},
	{
		tests: []string{"TestBrowsersReachOnlyTheServersOwnNames"}, file: "internal/browserguard/guard.go",
		guard: "if err := h.Check(r); err != nil {", without: "if err := error(nil); err != nil {",
	},
	{
		tests: []string{"TestBrowsersReachOnlyTheServersOwnNames"}, file: "internal/browserguard/guard.go",
		guard: `language && h.Get("Sec-Fetch-Mode") == ""`, without: "language && false",
	},
	{
		tests: []string{"TestAnOpenUploadHoldsUpNoOtherProject"}, file: "internal/blob/dir.go",
		guard: `return ownerUploads{d, "-" + hex.EncodeToString(sum[:8])}`, without: `return ownerUploads{d, "-" + hex.EncodeToString(sum[:0])}`,
	},
	{
		tests: []string{"TestContinuedUploadsCostWhatTheyBring"}, file: "internal/blob/dir.go",
		guard: "if saved, ok := d.hashes.Get(name); ok && saved.size == size && size > 0 {", without: "if saved, ok := d.hashes.Get(name); ok && saved.size < 0 {",
	},
	{
		tests: []string{"TestUnreadBodiesAreCutOff"}, file: "internal/connlimit/connlimit.go",
		guard: "if r.ContentLength != 0 {", without: "if false {",
	},
	{
		tests: []string{"TestBadFoldersAreTheirUsersFault"}, file: "internal/agent/run/process/workdir.go",
		guard: "reason = failed.Reason", without: "_ = failed",
	},
	{
		tests: []string{"TestKeysWithOddFieldsAreRefused"}, file: "internal/api/access/keys.go",
		guard: "strings.ContainsFunc(name, invalid)", without: "strings.ContainsFunc(name, invalid) && false",
	},
	{
		tests: []string{"TestAllAnswersHaveSecurityHeaders"}, file: "internal/browserguard/guard.go",
		guard: `h.Set("X-Content-Type-Options", "nosniff")`, without: "",
	},
	{
		tests: []string{"TestAllAnswersHaveSecurityHeaders"}, file: "internal/dialect/listen.go",
		guard: "browserguard.Headers(l.recoverPanics(l.setOrigin(l.recordDenials(l.bodies.limitBodies(l.authenticate(h))))))", without: "l.recoverPanics(browserguard.NewHosts().Guard(l.setOrigin(l.recordDenials(l.bodies.limitBodies(l.authenticate(h))))))",
	},
	{
		tests: []string{"TestGatewaysWithoutKeysTakeNothingFromPages"}, file: "internal/dialect/listen.go",
		guard: "if err := l.crossOrigin.Check(r); err != nil {", without: "if err := error(nil); err != nil {",
	},
	{
		tests: []string{"TestGatewaysWithoutKeysTakeNothingFromPages"}, file: "internal/dialect/listen.go",
		guard: "if err := l.deps.Hosts.Check(r); err != nil {", without: "if err := error(nil); err != nil {",
	},
	{
		tests: []string{"TestConnectionFloodsDoNotBlockOtherClients/silent", "TestConnectionFloodsDoNotBlockOtherClients/idle", "TestConnectionFloodsDoNotBlockOtherClients/no_body"},
		file:  "internal/connlimit/connlimit.go", guard: "return found[:min(len(found), 1+l.total/100)]", without: "return nil",
	},
	{
		tests: []string{"TestRequestsOfOneKeyDoNotBlockOthers"}, file: "internal/api/keyring/limits.go",
		guard: "if n.Add(1) > limit {", without: "if n.Add(1) > 1<<40 {",
	},
	{
		tests: []string{"TestWorkersShowOnlyTasksOfTheCallersProjects"}, file: "internal/api/workers.go",
		guard: "w.Tasks, err = s.readableTasks(ctx, w.Tasks)", without: "_, err = s.readableTasks(ctx, w.Tasks)",
	},
	{
		tests: []string{"TestWorkersDoNotFollowRedirects"}, file: "internal/origin/origin.go",
		guard: "if from != to {", without: "if false {",
	},
	{
		tests: []string{"TestKeyStaysWithItsScheme"}, file: "internal/origin/origin.go",
		guard: `return u.Scheme + "://" + host`, without: `_ = host; return ""`, inTest: true,
	},
	{
		tests: []string{"TestWorkerRejectsMoreThanItOffers"}, file: "internal/agent/attempttable.go",
		guard: `if why := tbl.capacity.reserve(&g); why != "" {`, without: `tbl.capacity.reserve(&g); if why := ""; why != "" {`,
	},
	{
		tests: []string{"TestRetentionOfAnotherProject", "TestPermissions"}, file: "internal/auth/auth.go",
		guard: `case what.Project != "" && what.Project != who.Project:`, without: `case what.Project == "none" && what.Project != who.Project:`,
	},
	{
		tests: []string{"TestPermissions"}, file: "internal/auth/auth.go",
		guard: "if !slices.Contains(rule.Roles, who.Role) {", without: "if false {",
	},
	{
		tests: []string{"TestGrantedRoles"}, file: "internal/auth/auth.go",
		guard: "if !slices.Contains(Grants[who.Role], role) {", without: "if false {",
	},
	{
		tests: []string{"TestGrantedRoles"}, file: "internal/auth/auth.go",
		guard: `if who.Project != "" && !role.ForProject() {`, without: "if false {",
	},
	{
		tests: []string{"TestTaskCannotMakeRareCalls", "TestCommandsInTasksAreFiltered"}, file: "internal/agent/isolation/seccomp/seccomp_linux.go",
		guard: "err := install(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog)", without: "var err error\n\t_ = prog",
	},
	{
		tests: []string{"TestTaskOfRootWorkerIsUnprivileged"}, file: "internal/agent/isolation/enter_linux.go",
		guard: "if !s.c.NoNewPrivileges || os.Geteuid() != 0 || s.c.User == nil && s.sandbox == nil {", without: "if true {",
	},
	{
		tests: []string{"TestWorkersOfOtherSystemsDoNotFollowRedirects"}, file: "internal/origin/origin.go",
		guard: "copied.CheckRedirect = CheckRedirect", without: "",
	},
	{
		tests: []string{"TestGatewaySessionsEndWhenTheirKeyIsRevoked"}, file: "internal/dialect/dtf/gateway_session.go",
		guard: "s.background.Go(func() { s.watchKey(ctx, r.key) })", without: "",
	},
	{
		tests: []string{"TestSecretsInOptionsAreHidden"}, file: "internal/cli/app/secret.go",
		guard: "list = append(list, secretParts(arg)...)", without: "_ = secretParts",
	},
	{
		tests: []string{"TestKeysOfAProjectDoNotBlockOthers"}, file: "internal/api/keyring/limits.go",
		guard: `case p.Role == auth.Admin && p.Project == "":`, without: "case p.Role == auth.Admin:",
	},
	{
		tests: []string{"TestConnectionsToOtherPortsDoNotBlockTheServer/metrics"}, file: "internal/obs/registry.go",
		guard: "connlimit.New(maxConns).Listen(listener)", without: "connlimit.New(1 << 20).Listen(listener)",
	},
	{
		tests: []string{"TestConnectionsToOtherPortsDoNotBlockTheServer/gateway"}, file: "internal/dialect/listen.go",
		guard: "connlimit.New(MaxConnections(connlimit.Descriptors())).Listen(l)", without: "connlimit.New(1 << 20).Listen(l)",
	},
	{
		tests: []string{"TestTaskCannotReadWorkerTokens"}, file: "internal/cli/app/secret.go",
		guard: "overwriteSecrets(listed)", without: "",
	},
	{
		tests: []string{"TestAnotherServerGetsNoKey", "TestInterceptingProxyIsRefused"}, file: "internal/origin/tls.go",
		guard: "c.VerifyConnection = pin.verify", without: "_ = pin", inTest: true,
	},
	{
		tests: []string{"TestAnotherServerGetsNoKey"}, file: "internal/origin/tls.go",
		guard: "if !found {\n\t\treturn &PinError{}\n\t}\n\t_, err := s.Peer", without: "if !found {\n\t\treturn nil\n\t}\n\t_, err := s.Peer", inTest: true,
	},
	{
		tests: []string{"TestClientsWithoutCertificateGetNothing"}, file: "internal/certs/clients.go",
		guard: "tls.RequireAnyClientCert, c.verifyClient", without: "tls.RequestClientCert, nil",
	},
	{
		tests: []string{"TestGatewaysWithTLSTakeNothingInPlain"}, file: "internal/dialect/listen.go",
		guard: "l = tls.NewListener(l, deps.TLS)", without: "_ = tls.NewListener",
	},
	{
		tests: []string{
			"TestGet/muster_get_replaces_no_file_without_asking", "TestGet/muster_get_--output_replaces_no_file_without_asking",
			"TestGet/muster_get_takes_a_link_in_the_place_of_a_file_for_an_existing_file",
		},
		file: "internal/cli/app/confirm.go", guard: "if n := len(existing); n > 0 && !o.Force {", without: "if n := len(existing); n > 1<<20 && !o.Force {",
	},
	{
		tests: []string{"TestGet/muster_get_writes_no_hidden_file_without_asking", "TestGet/muster_get_--force_writes_no_hidden_file_without_asking", "TestGet/muster_get_writes_no_hidden_file_that_a_server_names"},
		file:  "internal/cli/app/confirm.go", guard: "if n := len(hidden); n > 0 && !o.Hidden {", without: "if n := len(hidden); n > 1<<20 && !o.Hidden {",
	},
	{
		tests: []string{"TestGet/muster_get_does_not_follow_a_link_to_another_directory_of_the_same_one"}, file: "internal/client/target.go",
		guard: "if !info.IsDir() {", without: "if false {",
	},
	{
		tests: []string{"TestProjectAdminsSeeOnlyTheirKeys", "TestProjectAdminsDoNotRotateOtherKeys"}, file: "internal/api/access/keys.go",
		guard: "if i < 0 || !mayManage(ctx, &keys[i]) {", without: "if i < 0 {",
	},
	{
		tests: []string{"TestDataIsForItsUserOnly"}, file: "internal/store/sqlite/open.go",
		guard: "f.Chmod(0o600)", without: "f.Chmod(0o644)",
	},
	{
		tests: []string{"TestSpecCostIsBoundedBySize"}, file: "internal/spec/outline.go",
		guard: "budget := (maxPunctuation - fileSize/bytesPerPunctuation) / readings", without: "budget := 1 << 30 / readings\n\t_ = fileSize",
	},
	{
		tests: []string{"TestSandboxOffHasNoFilter"}, file: "internal/agent/isolation/enter_linux.go",
		guard: "if !s.c.Seccomp {", without: "if false {",
	},
	{
		tests: []string{"TestTaskCannotReadSharedMemoryOfOthers", "TestTaskLeavesNothingInSharedMemory"}, file: "internal/agent/isolation/isolation.go",
		guard: "return &run.IPC{Size: cmp.Or(memory, l.cfg.Memory/2)}", without: "return nil",
	},
	{
		tests: []string{"TestOwnerSharesTheMachinesMemory"}, file: "internal/agent/isolation/runas.go",
		guard: "return inside(path, sharedMemory)", without: "return false && inside(path, sharedMemory)",
	},
	{
		tests: []string{"TestTasksCannotFillTheDisk/bytes_without_a_disk", "TestTasksCannotFillTheDisk/empty_files_without_a_disk"}, file: "internal/agent/isolation/isolation.go",
		guard: "return *l.cfg.Disk", without: "return 0",
	},
	{
		tests: []string{"TestTasksCannotFillTheDisk/empty_files", "TestTasksCannotFillTheDisk/empty_files_without_a_disk"}, file: "internal/agent/meter/disk.go",
		guard: "w.size += max(blocks(info), minEntry)", without: "w.size += blocks(info)",
	},
	{
		tests: []string{"TestTasksCannotFillTheDisk/folders_without_a_path"}, file: "internal/agent/meter/subject.go",
		guard: "sub.tooDeep = errors.Is(err, errTooDeep)", without: "sub.tooDeep = errors.Is(err, errTooMany)",
	},
	{
		tests: []string{"TestBuildsOfProjectsAreSeparate"}, file: "internal/agent/run/python/spec.go",
		guard: "spec.Project, spec.Request = r.Project, r", without: "spec.Request = r",
	},
	{
		tests: []string{"TestBuildsInImagesAreSeparate"}, file: "internal/agent/run/python/project.go",
		guard: `case strings.HasPrefix(name, "UV_"), strings.HasSuffix`, without: `case true, strings.HasSuffix`,
	},
	{
		tests: []string{"TestBuildsInImagesAreSeparate"}, file: "internal/agent/run/python/tool.go",
		guard: `owner += "\n" + s.Image`, without: ``,
	},
	{
		tests: []string{"TestBuildsInImagesAreSeparate"}, file: "internal/agent/run/process/runtime.go",
		guard: `a.Expose(dir, "python", false)`, without: `a.Expose(dir, "python", true)`,
	},
	{
		tests: []string{"TestModelsOfProjectsAreSeparate"}, file: "internal/agent/run/project.go",
		guard: "sha256.Sum256([]byte(project))", without: `sha256.Sum256([]byte(project[:0]))`,
	},
	{
		tests: []string{"TestModelsOfProjectsAreSeparate"}, file: "internal/agent/run/kinds/setup.go",
		guard: `p.a.Expose(owner, "owner-models", false)`, without: `p.a.Expose(owner, "owner-models", true)`,
	},
	{
		tests: []string{"TestModelsOfProjectsAreSeparate"}, file: "internal/agent/run/kinds/setup.go",
		guard: "[]string{p.a.Task.Project, p.d.ModelKey(p.input), p.python}", without: "[]string{p.d.ModelKey(p.input), p.python}",
	},
	{
		tests: []string{"TestReadersDoNotSeeHiddenValues"}, file: "internal/api/redact/redact.go",
		guard: "script.URL = muster.RedactURL(script.URL)", without: "_ = muster.RedactURL",
	},
	{
		tests: []string{"TestReadersDoNotSeeHiddenValues"}, file: "internal/agent/run/script/script.go",
		guard: `"fetch the script from %s: %w", muster.RedactURL(rawURL), err)`, without: `"fetch the script from %s: %w", rawURL, err)`,
	},
	{
		tests: []string{"TestReadersDoNotSeeHiddenValues"}, file: "internal/api/redact/redact.go",
		guard: "t.Env[name] = hidden", without: "_, _ = name, hidden",
	},
	{
		tests: []string{"TestPagesCannotUseTheDashboardsCookie"}, file: "internal/api/access/session.go",
		guard: "if a.crossOrigin.Check(r) != nil {", without: "if false {",
	},
	{
		tests: []string{"TestErrorsDoNotShowThePasswordOfAURL"}, file: "internal/cli/app/exit.go",
		guard: "addresses.Get().ReplaceAllStringFunc(err.Error(), muster.HideCredentials)", without: "cmp.Or(err.Error(), addresses.Get().String())",
	},
	{
		tests: []string{"TestErrorsDoNotShowSettingsOfGateways"}, file: "internal/cli/app/help.go",
		guard: "return first + `,…\"`", without: "_ = first\n\treturn quoted",
	},
	{
		tests: []string{"TestErrorsDoNotShowThePasswordOfAURL"}, file: "address.go",
		guard: `return address[:start] + "xxxxx" + address[end:]`, without: "return address",
	},
	{
		tests: []string{"TestTaskCannotSeeOtherProcesses"}, file: "internal/agent/isolation/view/view_linux.go",
		guard: `"hidepid=ptraceable"`, without: `""`,
	},
	{
		tests: []string{
			"TestStreamsEndWhenTheirKeyIsRevoked/revoked/api/v1/events",
			"TestUploadsEndWhenTheirKeyIsRevoked", "TestSessionsEndWhenTheirKeyIsRevoked/websocket_after_welcome",
		},
		file: "internal/api/keyring/keyring.go", guard: "active.cancel(cause)", without: "_ = cause",
	},
	{
		tests: []string{"TestStreamsEndWhenTheirKeyIsRevoked/expired/api/v1/events", "TestStreamsOfARotatedTokenEndWithItsOverlap"},
		file:  "internal/api/keyring/keyring.go", guard: "active.cancel(expiredError(key))", without: "_ = key",
	},
	{
		tests: []string{"TestStreamsOfARotatedTokenEndWithItsOverlap"}, file: "internal/api/keyring/keyring.go",
		guard: "r.assign(active, *rotated)", without: "active.key.ID = key.ID",
	},
	{
		tests: []string{"TestRotatedTokenIsRefusedAfterItsOverlap"}, file: "internal/api/keyring/keyring.go",
		guard: "if key.ExpiresAt != 0 && muster.NewTime(time.Now()) >= key.ExpiresAt {", without: "if false {",
	},
	{
		tests: []string{"TestOverlapsOnlyGetShorter"}, file: "internal/api/access/keys.go",
		guard: "old.ExpiresAt = earliest(key.ExpiresAt, end)", without: "old.ExpiresAt = end",
	},
	{
		tests: []string{"TestOverlapsOnlyGetShorter"}, file: "internal/api/access/keys.go",
		guard: "earlier[i].ExpiresAt = earliest(earlier[i].ExpiresAt, end)", without: "_ = i",
	},
	{
		tests: []string{"TestRotationsThatAreRefused"}, file: "internal/api/access/keys.go",
		guard: "case body.Overlap > maxOverlap:", without: "case false:",
	},
	{
		tests: []string{"TestRotationsThatAreRefused"}, file: "internal/api/access/keys.go",
		guard: "case body.Overlap == 0 && key.ID == caller.FromContext(ctx).KeyID:", without: "case false:",
	},
	{
		tests: []string{"TestRotationsThatAreRefused"}, file: "internal/api/access/keys.go",
		guard: "case key.Rotated:", without: "case false:",
	},
	{
		tests: []string{"TestLinksOfAnOldSecretEndWithIt"}, file: "internal/api/access/share.go",
		guard: "key.ExpiresAt = min(key.ExpiresAt, by.Expires)", without: "_ = by",
	},
	{
		tests: []string{"TestAScheduleEndsWithTheKeyOfItsOwner"}, file: "internal/schedules/schedules.go",
		guard: `key, err := s.Store.KeyByID(ctx, v.Owner)`, without: `key, err := store.Key{ID: v.Owner, Role: "admin"}, error(nil)`,
	},
	{
		tests: []string{"TestAScheduleHasNoSignedJob"}, file: "internal/schedules/schedules.go",
		guard: `if v.Spec.Signature != nil {`, without: `if false {`,
	},
	{
		tests: []string{"TestTheResultCacheOfAProjectIsItsOwn"}, file: "internal/store/sqlite/cache.go",
		guard: `" FROM cache_entry WHERE project = ? AND key = ?"`, without: `" FROM cache_entry WHERE ? <> '' AND key = ?"`,
	},
	{
		tests: []string{"TestTheResultCacheOfAProjectIsItsOwn"}, file: "internal/api/resultcache.go",
		guard: `if err := auth.Can(principalOf(ctx), auth.RemoveJobs, auth.Object{Project: in.Project}); err != nil {`, without: `if err := error(nil); err != nil {`,
	},
	{
		tests: []string{"TestListsOfKeysHaveNoSecrets"}, file: "internal/auth/token.go",
		guard: "const prefixRandom = 4", without: "const prefixRandom = 5",
	},
	{
		tests: []string{"TestLastUseSurvivesARestart"}, file: "internal/serverd/server.go",
		guard: "group.Go(func() error { return s.keys.Run(serviceCtx) })", without: "",
	},
	{
		tests: []string{"TestUpgradeHidesTokens"}, file: "internal/cli/app/program.go",
		guard: "p.args = s.RemoveFlags(p.args)", without: "_ = s",
	},
	{
		tests: []string{"TestSecretsDoNotLeaveTheirTask/the_log_has_stars_in_its_place,_also_after_a_restart_of_the_worker", "TestSecretsDoNotLeaveTheirTask/progress_and_result_have_stars_in_its_place"},
		file:  "internal/agent/session.go", guard: "t.Redact = append(t.Redact, as.Secrets[i].Value)", without: "_ = i",
	},
	{
		tests: []string{"TestSecretsDoNotLeaveTheirTask/a_file_whose_name_has_it_is_not_an_artifact"}, file: "internal/agent/run/process/outputs.go",
		guard: "case c.a.redactor.String(name) != name:", without: "case false:",
	},
	{
		tests: []string{"TestSecretsDoNotLeaveTheirTask/a_file_of_a_secret_is_its_task's,_exact,_and_not_an_artifact"}, file: "internal/agent/run/process/outputs.go",
		guard: "case dir == c.a.Dir && c.a.isSecretFile(root, info):", without: "case false && c.a.isSecretFile(root, info):",
	},
	{
		tests: []string{"TestSecretsAreForTheirProject/another_project_cannot_name_it"}, file: "internal/api/spec.go",
		guard: "if errs := secrets.Require(s.Secrets, spec); len(errs) > 0 {", without: "if errs := secrets.Require(s.Secrets, spec); len(errs) > 1<<40 {",
	},
	{
		tests: []string{"TestSecretsAreForTheirProject/a_viewer_and_an_operator_do_not_see_the_names,_and_cannot_change_it", "TestSecretsAreForTheirProject/a_submitter_may_use_it,_but_not_change_it"},
		file:  "internal/auth/table.go", guard: "{ManageSecrets, Project, []Role{Admin},", without: "{ManageSecrets, Project, []Role{Admin, Operator, Submitter, Viewer},",
	},
	{
		tests: []string{"TestStolenRowsOfSecrets/a_row_that_was_copied_to_another_project_is_not_read"}, file: "internal/secrets/secrets.go",
		guard: `[]string{"secret", s.Project, s.Name, strconv.Itoa(s.Version)}`, without: `[]string{"secret", s.Name, strconv.Itoa(s.Version)}`,
	},
	{
		tests: []string{"TestStolenRowsOfSecrets/without_the_key_the_server_says_so,_and_makes_no_new_one"}, file: "internal/secrets/secrets.go",
		guard: `src.Command == "" && count > 0 &&`, without: `src.Command == "" && count > 1<<40 &&`,
	},
	{
		tests: []string{"TestAnAlteredRecordIsFound", "TestARemovedRecordIsFound", "TestARenumberedLogIsFound", "TestAnInsertedRecordIsFound", "TestReorderedRecordsAreFound", "TestARemovedTailIsFoundByANotedHead", "TestARewrittenLogIsFoundByANotedHead"}, file: "internal/audit/verify.go",
		guard: "v.problem = &Problem{seq, fmt.Sprintf(format, args...)}", without: "_ = fmt.Sprintf(format, args...)",
	},
	{
		tests: []string{"TestAnAlteredRecordIsFound"}, file: "internal/audit/verify.go",
		guard: "case hashOf(v.head.Hash, r) != r.Hash:", without: "case false && hashOf(v.head.Hash, r) != r.Hash:",
	},
	{
		tests: []string{"TestAnExportIsVerifiedOffline"}, file: "internal/cli/audit/verify.go",
		guard: "if result.Problem == nil && result.Head != last.Head {", without: "if false {",
	},
	{
		tests: []string{"TestAForgedBaseIsFound"}, file: "internal/audit/verify.go",
		guard: "case v.base.Seq > v.allowed.Seq, v.base.Seq == v.allowed.Seq && v.base.Hash != v.allowed.Hash:", without: "case false:",
	},
	{
		tests: []string{"TestRetentionLeavesAVerifiableLog"}, file: "internal/audit/verify.go",
		guard: "v.allowed = upTo", without: "_ = upTo",
	},
	{
		tests: []string{"TestAChangeIsRecordedWithWhoWhereAndWhat", "TestEveryChangingOperationIsRecorded", "TestWorkersAreRecorded", "TestSignInsAreRecorded"}, file: "internal/api/audit.go",
		guard: "s.Audit.Write(ctx, *rec)", without: "_ = ctx",
	},
	{
		tests: []string{"TestEveryDenialIsRecorded"}, file: "internal/api/audit.go",
		guard: "s.Audit.Count(*rec)", without: "",
	},
	{
		tests: []string{"TestAHiddenDenialIsRecorded"}, file: "internal/api/caller/audit.go",
		guard: "r.Outcome, r.Detail = audit.Denied, reason.Error()", without: "_, _, _ = r, audit.Denied, reason",
	},
	{
		tests: []string{"TestOnlyAdministratorsReadTheAuditLog"}, file: "internal/auth/table.go",
		guard: "{ReadAudit, Project, []Role{Admin},", without: "{ReadAudit, Project, []Role{Admin, Operator, Submitter, Viewer},",
	},
	{
		tests: []string{"TestAProjectAdministratorReadsItsProjectOnly"}, file: "internal/api/auditlog.go",
		guard: "if !limitToProject(ctx, &q.Project) {", without: "if false {",
	},
	{
		tests: []string{"TestNoRecordHasASecret"}, file: "internal/audit/record.go",
		guard: "s = tokenPattern.Get().ReplaceAllString(s, \"mst_…\")", without: "_ = tokenPattern",
	},
	{
		tests: []string{"TestNoHeaderForgesTheAddress"}, file: "internal/serverd/server.go",
		guard: "s.serveHTTP(serviceCtx, s.http, s.listener)", without: "s.serveHTTP(serviceCtx, &http.Server{Handler: dialect.ReceiveOrigin(s.http.Handler, withOrigin), ConnContext: connlimit.ConnContext}, s.listener)",
	},
	{
		tests: []string{"TestClientsOfGatewaysAreRecorded"}, file: "internal/api/audit.go",
		guard: "if o := caller.OriginOf(r.Context()); o.Gateway != \"\" {", without: "if o := caller.OriginOf(r.Context()); false && o.Gateway != \"\" {",
	},
	{
		tests: []string{"TestClientsOfGatewaysAreRecorded"}, file: "internal/dialect/origin.go",
		guard: "if !o.denied.Load() {", without: "if true {",
	},
	{
		tests: []string{"TestAFloodOfDenialsIsBounded"}, file: "internal/auditlog/counts.go",
		guard: "if g, ok := c.groups[key]; ok {", without: "if g, ok := c.groups[key]; ok && false {",
	},
	{
		tests: []string{"TestRequestsWithoutAKeyAreLimited"}, file: "internal/ratelimit/ratelimit.go",
		guard: "if a.bucket.Allow() {", without: "if true {",
	},
	{
		tests: []string{"TestClientsBehindOneAddressDoNotLimitEachOther"}, file: "internal/api/keyring/keyring.go",
		guard: "if _, seen := r.seen.Get(hash); !seen && auth.Prefix(token) == \"\" {", without: "if _, seen := r.seen.Get(hash); !seen || seen {",
	},
	{
		tests: []string{"TestGuessingFindsNothingBeyondTheLimit"}, file: "internal/api/keyring/keyring.go",
		guard: "if _, seen := r.seen.Get(hash); !seen && auth.Prefix(token) == \"\" {", without: "if _, seen := r.seen.Get(hash); !seen && false {",
	},
	{
		tests: []string{"TestGuessedJoinTokensAreSlowedDown"}, file: "internal/ratelimit/ratelimit.go",
		guard: "return min(minDelay<<min(excess, 20), maxDelay)", without: "return 0",
	},
	{
		tests: []string{"TestGuessesAtOnceAreRefused"}, file: "internal/ratelimit/ratelimit.go",
		guard: "if !acquire(&l.delayed, maxDelayed, &a.delayed, maxDelayedPerAddress) {", without: "if false {",
	},
	{
		tests: []string{"TestGuessesAreCountedWhereverTheyAreSent"}, file: "internal/api/keyring/keyring.go",
		guard: "cmp.Or(r.limits.Failed(ctx, from), err)", without: "cmp.Or(err)",
	},
	{
		tests: []string{"TestRequestsOfAKeyAreLimited", "TestClientsWaitAsTheServerSays"}, file: "internal/ratelimit/ratelimit.go",
		guard: "if bucket == nil || ctx.Value(exemptKey{}) != nil || bucket.Allow() {", without: "if true {",
	},
	{
		tests: []string{"TestHonestSubmissionsAreNotLimited"}, file: "internal/ratelimit/ratelimit.go",
		guard: "DefaultPerKey     = 5_000", without: "DefaultPerKey     = 10",
	},
	{
		tests: []string{"TestLimitsCanBeSwitchedOff"}, file: "internal/ratelimit/ratelimit.go",
		guard: "return l != nil && l.cfg.PerAddress > 0 && ctx", without: "return l != nil && ctx",
	},
	{
		tests: []string{"TestLimitedAnswersHaveSecurityHeaders"}, file: "internal/ratelimit/ratelimit.go",
		guard: "l.onRefusal(reason)", without: "_ = reason",
	},
	{
		tests: []string{"TestOwnAuthorityDoesNotLockOutBrowsers"}, file: "internal/serverd/tls.go",
		guard: "if s.certs == nil || s.cfg.TLS.Own {", without: "if s.certs == nil {",
	},
	{
		tests: []string{"TestStreamsOfAKeyAreLimited"}, file: "internal/api/keyring/limits.go",
		guard: "return acquire(&k.streams, l.maxStreams,", without: "return acquire(&k.streams, 1<<40,",
	},
	{
		tests: []string{"TestAbsurdPricesAreRefused"}, file: "internal/link/limits.go",
		guard: "checkAtMost(\"price\", h.Price, maxPrice),", without: "nil,",
	},
	{
		tests: []string{"TestAbsurdReportsDoNoHarm"}, file: "internal/link/check.go",
		guard: `checkAtMost("log_size", r.LogSize, maxBytes))`, without: "nil)",
	},
	{
		tests: []string{"TestLogOfAnAttemptIsBounded"}, file: "internal/engine/logs.go",
		guard: "const logSlack = 256 << 20", without: "const logSlack = 256 << 40",
	},
	{
		tests: []string{"TestWorkersRefuseKindsThatTheyDoNotOffer"}, file: "internal/agent/session.go",
		guard: "if !a.accepts(spec.Kind) {", without: "if false {",
	},
	{
		tests: []string{"TestWorkersRefuseVariablesThatTheirOwnersDoNotAllow"}, file: "internal/agent/session.go",
		guard: `if why := policy.Check(a.cfg.Allow, spec); why != "" {`, without: `if why := policy.Check(nil, spec); why != "" {`,
	},
	{
		tests: []string{"TestWorkersRefuseLongerTimeoutsThanTheirOwnersAllow"}, file: "internal/policy/policy.go",
		guard: "if a != nil && a.MaxTaskTimeout > 0 && t.Timeout > a.MaxTaskTimeout {", without: "if false {",
	},
	{
		tests: []string{"TestWorkersEndTasksWithoutATimeoutAtTheirMaximum"}, file: "internal/workerd/executors.go",
		guard: "w.cfg.AllowPrivate, w.cfg.Allow.DefaultTimeout()", without: "w.cfg.AllowPrivate, 0",
	},
	{
		tests: []string{"TestWorkersEndTasksWithoutATimeoutAtTheirMaximum"}, file: "allow.go",
		guard: "return a.TaskTimeout.Or(a.MaxTaskTimeout)", without: "return a.TaskTimeout",
	},
	{
		tests: []string{"TestWorkersRefuseMoreTasksThanTheirMaximum"}, file: "internal/agent/capacity.go",
		guard: "case c.offer.MaxTasks > 0 && c.tasks >= c.offer.MaxTasks:", without: "case false:",
	},
	{
		tests: []string{"TestWorkersRefuseMoreCoresThanTheyOffer"}, file: "internal/agent/capacity.go",
		guard: "case g.CPUs > 0 && c.milliCPUs+milliCores(g.CPUs) > milliCores(c.offer.CPUs):", without: "case false:",
	},
	{
		tests: []string{"TestWorkersRefuseMoreMemoryThanTheyOffer"}, file: "internal/agent/capacity.go",
		guard: "case g.Memory > 0 && c.memory+g.Memory > c.offer.Memory:", without: "case false:",
	},
	{
		tests: []string{"TestWorkersRefuseDevicesThatTheyDoNotHave"}, file: "internal/agent/capacity.go",
		guard: `if why := c.checkGPU(id, g.GPUMemory); why != "" {`, without: `if why := id[:0]; why != "" {`,
	},
	{
		tests: []string{"TestWorkersRefuseAmountsThatOverflow"}, file: "internal/link/check.go",
		guard: `checkAtMost("cpus", g.CPUs, maxCPUs),`, without: "nil,",
	},
	{
		tests: []string{"TestInputsStayInTheTasksFolder"}, file: "internal/agent/run/process/workdir.go",
		guard: `if !filepath.IsLocal(filepath.FromSlash(in.Path)) || in.Path == "." {`, without: "if false {",
	},
	{
		tests: []string{"TestAlteredFramesEndTheSession", "TestWorkersRejectAlteredFrames"}, file: "internal/link/seal.go",
		guard: "if !hmac.Equal(c.in.sign(head, frame), signature) || b[sealOverhead-1] != ' ' {", without: "if len(signature) == 0 {",
	},
	{
		tests: []string{"TestRepeatedFramesEndTheSession"}, file: "internal/link/seal.go",
		guard: "case seq < want:", without: "case false:",
	},
	{
		tests: []string{"TestDroppedFramesEndTheSession"}, file: "internal/link/seal.go",
		guard: "case seq > want:", without: "case false:",
	},
	{
		tests: []string{"TestFramesWithoutSignaturesEndTheSession"}, file: "internal/link/seal.go",
		guard: `		return nil, reject(Unsealed, "it has no signature")`, without: `		return b, nil`,
	},
}
