# A day of an ordinary user: every command of ddl, dml, namespace and tools that most people type.
# day.expected holds what a stock HBase 2.6.4 printed, through the filter described in ../README.md.
puts '== create'
create 'day', {NAME => 'f', VERSIONS => 3}, {NAME => 'g', TTL => 86400, BLOOMFILTER => 'ROWCOL'}
create 'day_split', 'f', SPLITS => ['g', 'p']
create 'day', 'f'
exists 'day'
exists 'no_such'
list 'day.*'
describe 'day'
puts '== alter'
alter 'day', {NAME => 'h', COMPRESSION => 'GZ'}
alter 'day', {NAME => 'f', VERSIONS => 5}, {NAME => 'g', METHOD => 'delete'}
alter 'day', MAX_FILESIZE => '134217728'
describe 'day'
alter 'no_such', 'f'
puts '== put and get'
put 'day', 'r1', 'f:a', 'one', 1
put 'day', 'r1', 'f:a', 'two', 2
put 'day', 'r1', 'f:b', 'bee', 2
put 'day', 'r1', 'h:c', 'sea', 3
put 'day', 'r2', 'f:a', 'other', 5
put 'day', 'r2', 'f:n', "\x00\x01\xff", 5
put 'day', 'r3', 'f:a', 'third', 7
put 'day', 'r1', 'x:a', 'v', 1
put 'no_such', 'r', 'f:a', 'v'
get 'day', 'r1'
get 'day', 'r1', 'f:a'
get 'day', 'r1', ['f:a', 'h:c']
get 'day', 'r1', {COLUMN => 'f:a', VERSIONS => 5}
get 'day', 'r1', {COLUMN => 'f:a', TIMESTAMP => 1}
get 'day', 'r1', {TIMERANGE => [0, 3]}
get 'day', 'r1', {FILTER => "ValueFilter(=, 'binary:bee')"}
get 'day', 'none'
get 'day', 'r1', 'x'
puts '== scan'
scan 'day'
scan 'day', {COLUMNS => ['f:a']}
scan 'day', {STARTROW => 'r2', LIMIT => 1}
scan 'day', {STOPROW => 'r2'}
scan 'day', {REVERSED => true}
scan 'day', {VERSIONS => 5, RAW => true}
scan 'day', {ROWPREFIXFILTER => 'r3'}
scan 'day', {FILTER => "PrefixFilter('r') AND QualifierFilter(=, 'binary:a')"}
scan 'day', {FILTER => "SingleColumnValueFilter('f', 'a', =, 'binary:other')"}
scan 'day', {FILTER => "(KeyOnlyFilter()) AND (PageFilter(2))"}
scan 'day', {FILTER => "ColumnPrefixFilter('a')", TIMERANGE => [0, 6]}
scan 'day', {COLUMNS => 'x'}
puts '== count, counters, append'
count 'day'
count 'day', INTERVAL => 1
incr 'day', 'r1', 'f:count', 5
incr 'day', 'r1', 'f:count'
get_counter 'day', 'r1', 'f:count'
incr 'day', 'r1', 'f:a', 1
append 'day', 'r1', 'f:b', 'tle'
get 'day', 'r1', {COLUMN => ['f:b', 'f:count'], FORMATTER => 'toString'}
puts '== delete'
delete 'day', 'r1', 'f:a', 2
get 'day', 'r1', 'f:a'
deleteall 'day', 'r1', 'h:c'
deleteall 'day', 'r2'
scan 'day', {COLUMNS => ['f:a', 'f:n', 'h']}
deleteall 'day', {ROWPREFIXFILTER => 'r3'}
count 'day'
puts '== disable and enable'
disable 'day'
is_disabled 'day'
is_enabled 'day'
scan 'day'
drop 'day_split'
enable 'day'
is_enabled 'day'
puts '== flush, compact, split'
put 'day_split', 'a', 'f:q', 'v', 1
put 'day_split', 'h', 'f:q', 'v', 1
put 'day_split', 'z', 'f:q', 'v', 1
flush 'day_split'
compact 'day_split'
major_compact 'day_split'
get_splits 'day_split'
split 'day_split', 'u'
sleep 4
get_splits 'day_split'
scan 'day_split'
puts '== truncate'
truncate 'day_split'
get_splits 'day_split'
count 'day_split'
truncate 'day'
puts '== namespaces'
create_namespace 'day_ns', {'owner' => 'me'}
create_namespace 'day_ns'
describe_namespace 'day_ns'
alter_namespace 'day_ns', {METHOD => 'set', 'owner' => 'you'}
describe_namespace 'day_ns'
list_namespace 'day.*'
create 'day_ns:t', 'f'
list_namespace_tables 'day_ns'
list 'day_ns:.*'
drop_namespace 'day_ns'
disable 'day_ns:t'
drop 'day_ns:t'
drop_namespace 'day_ns'
describe_namespace 'day_ns'
puts '== status'
status
status 'simple'
is_enabled 'no_such'
balancer_enabled
locate_region 'day', 'r'
puts '== snapshots'
put 'day', 's1', 'f:a', 'kept', 1
snapshot 'day', 'day_snap'
snapshot 'day', 'day_snap'
snapshot 'day', 'day_soon', {TTL => 86400}
snapshot 'no_such', 'day_none'
list_snapshots 'day.*'
list_table_snapshots 'day'
clone_snapshot 'day_snap', 'day_clone'
clone_snapshot 'day_snap', 'day_clone'
scan 'day_clone'
put 'day', 's2', 'f:a', 'undone', 1
restore_snapshot 'day_snap'
disable 'day'
restore_snapshot 'day_snap'
enable 'day'
scan 'day'
delete_snapshot 'day_soon'
delete_snapshot 'day_soon'
delete_snapshot 'day_snap'
list_snapshots 'day.*'
snapshot_cleanup_switch false
snapshot_cleanup_enabled
snapshot_cleanup_switch true
cleaner_chore_enabled
cleaner_chore_switch false
cleaner_chore_switch true
disable 'day_clone'
drop 'day_clone'
puts '== drop'
disable_all 'day_none.*'
disable 'day'
drop 'day'
disable 'day_split'
drop 'day_split'
exists 'day'
list 'day.*'
