enable_rpc_throttle
disable_rpc_throttle
disable_rpc_throttle
enable_rpc_throttle
list_quotas
set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => '10req/sec'
set_quota TYPE => THROTTLE, THROTTLE_TYPE => READ, USER => 'u1', LIMIT => '5M/min'
set_quota TYPE => THROTTLE, THROTTLE_TYPE => WRITE, USER => 'u1', TABLE => 't1', LIMIT => '100k/hour', SCOPE => CLUSTER
set_quota TYPE => THROTTLE, USER => 'u1', NAMESPACE => 'ns1', LIMIT => '7CU/day'
set_quota TYPE => THROTTLE, TABLE => 't1', LIMIT => '1G/sec', SCOPE => MACHINE
set_quota TYPE => THROTTLE, NAMESPACE => 'ns1', LIMIT => '3B/sec'
set_quota TYPE => THROTTLE, THROTTLE_TYPE => READ, REGIONSERVER => 'all', LIMIT => '30000req/sec'
set_quota USER => 'u2', GLOBAL_BYPASS => true
list_quotas
list_quotas USER => 'u.*'
list_quotas USER => 'u1', TABLE => 't.*'
list_quotas USER => 'u1', NAMESPACE => 'ns1'
list_quotas TABLE => 't1'
list_quotas NAMESPACE => 'ns.*'
list_quotas 'LIMIT' => 2
enable_exceed_throttle_quota
set_quota TYPE => THROTTLE, THROTTLE_TYPE => WRITE, REGIONSERVER => 'all', LIMIT => '30000req/sec'
enable_exceed_throttle_quota
enable_exceed_throttle_quota
disable_exceed_throttle_quota
set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => 'ten'
set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => '10req/week'
set_quota TYPE => THROTTLE, LIMIT => '10req/sec'
set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => '10req/sec', SCOPE => WORLD
set_quota TYPE => THROTTLE, REGIONSERVER => 'all', LIMIT => '10req/sec', SCOPE => CLUSTER
set_quota TYPE => BOGUS, USER => 'u1'
set_quota USER => 'u1'
list_quotas BOGUS => 'x'
create 'quoted', 'f'
set_quota TYPE => THROTTLE, TABLE => 'quoted', LIMIT => '1000req/sec'
describe 'quoted'
create_namespace 'quoted'
set_quota TYPE => THROTTLE, NAMESPACE => 'quoted', LIMIT => '1000req/sec'
describe_namespace 'quoted'
drop_namespace 'quoted'
disable 'quoted'
drop 'quoted'
list_quotas TABLE => 'quoted'
list_quotas NAMESPACE => 'quoted'
set_quota TYPE => THROTTLE, THROTTLE_TYPE => READ_SIZE, USER => 'u1', LIMIT => NONE
list_quotas USER => 'u1'
set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => NONE
set_quota USER => 'u2', GLOBAL_BYPASS => false
set_quota TYPE => THROTTLE, TABLE => 't1', LIMIT => NONE
set_quota TYPE => THROTTLE, NAMESPACE => 'ns1', LIMIT => NONE
set_quota TYPE => THROTTLE, REGIONSERVER => 'all', LIMIT => NONE
set_quota TYPE => SPACE, TABLE => 't1', LIMIT => '1G', POLICY => NO_INSERTS
set_quota TYPE => SPACE, NAMESPACE => 'ns1', LIMIT => '5T', POLICY => NO_WRITES_COMPACTIONS
list_quotas
set_quota TYPE => SPACE, TABLE => 't1', LIMIT => 1536, POLICY => DISABLE
list_quotas TABLE => 't1'
set_quota TYPE => SPACE, TABLE => 't1', LIMIT => '1G'
set_quota TYPE => SPACE, TABLE => 't1', POLICY => NO_INSERTS
set_quota TYPE => SPACE, TABLE => 't1', LIMIT => 'x', POLICY => NO_INSERTS
set_quota TYPE => SPACE, TABLE => 't1', NAMESPACE => 'ns1', LIMIT => '1G', POLICY => DISABLE
set_quota TYPE => SPACE, LIMIT => '1G', POLICY => DISABLE
set_quota TYPE => SPACE, TABLE => 't1', LIMIT => NONE
set_quota TYPE => SPACE, NAMESPACE => 'ns1', LIMIT => NONE
create_namespace 'limited', {'hbase.namespace.quota.maxtables' => '0'}
create_namespace 'limited', {'hbase.namespace.quota.maxtables' => '1', 'hbase.namespace.quota.maxregions' => '2'}
create 'limited:t1', 'f', SPLITS => ['c', 'm']
create 'limited:t1', 'f'
create 'limited:t2', 'f'
disable 'limited:t1'
drop 'limited:t1'
drop_namespace 'limited'
list_quotas
list_quota_snapshots
list_snapshot_sizes
