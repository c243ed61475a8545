# Takes the place of the 2.4 shell's command, which needs a tracing class that HBase 2.6 no longer has.
module Shell
  module Commands
    class Trace < Command
      def help
        'Not available over an HBase 2.6 client.'
      end

      def command(*)
        formatter.output_str('not available over an HBase 2.6 client')
      end
    end
  end
end
