create 'failing', 'f'
put 'failing', 'r', 'f:a', 'v', 1
get 'failing', 'r'
disable 'failing'
drop 'failing'
put 'no_such', 'r', 'f:a', 'v'
puts 'not reached'
